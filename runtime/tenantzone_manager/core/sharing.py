"""Who shares a group, by namespace: what is said for one leaves what is said for others as it is.

A group is one, with one quota, whoever shares it. Its pools, its aliases and what its zones and instances are promised
are a namespace's own: a pool and a zone by their names, an alias as engines make it, an instance by the pool that has
registered it. So nobody needs to be remembered as who has said what, and namespaces are told apart whoever speaks for
them.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from tenantzone_contract.cache_names import is_group_of
from tenantzone_manager.core.settings import Instance, InstanceGroup

Registered = Mapping[str, Instance | None]
"""Instances by name; None: there is none."""


def of_namespace(group: InstanceGroup, namespace: str, registered: Registered) -> InstanceGroup:
    """A group as it is for one namespace."""
    return replace(
        group,
        pools=tuple(pool for pool in group.pools if is_pool_of(pool, namespace)),
        aliases=tuple(alias for alias in group.aliases if is_group_of(alias, namespace)),
        instances={
            name: quotas for name, quotas in group.instances.items() if not _is_of_others(name, namespace, registered)
        },
        zones={zone: quotas for zone, quotas in group.zones.items() if is_pool_of(zone, namespace)},
    )


def shared(known: InstanceGroup | None, said: InstanceGroup, namespace: str, registered: Registered) -> InstanceGroup:
    """A group as it is after somebody has spoken for one namespace.

    What an instance is promised that nobody has registered any more was said for nobody, and goes.

    Args:
        known: as it was; None: there was none.
        said: as it shall be for the namespace.
        namespace: which one.
        registered: the instances that both name; one that is missing here stays.

    Raises:
        ValueError: what was said is about another namespace.
    """
    _check(said, namespace, registered)
    if known is None:
        return said
    return replace(
        said,
        pools=(*(pool for pool in known.pools if not is_pool_of(pool, namespace)), *said.pools),
        aliases=(*(alias for alias in known.aliases if not is_group_of(alias, namespace)), *said.aliases),
        instances={
            **{name: own for name, own in known.instances.items() if _is_of_others(name, namespace, registered)},
            **said.instances,
        },
        zones={
            **{zone: quotas for zone, quotas in known.zones.items() if not is_pool_of(zone, namespace)},
            **said.zones,
        },
    )


def is_pool_of(pool: str, namespace: str) -> bool:
    """Whether a pool, NAMESPACE/POOL, or a zone of one is in this namespace."""
    return pool.startswith(f"{namespace}/")


def _is_of_others(name: str, namespace: str, registered: Registered) -> bool:
    if name not in registered:
        return True
    instance = registered[name]
    return instance is not None and not is_pool_of(instance.pool, namespace)


def _check(said: InstanceGroup, namespace: str, registered: Registered) -> None:
    strange = [
        *(f"the pool {pool}" for pool in said.pools if not is_pool_of(pool, namespace)),
        *(f"the alias {alias}" for alias in said.aliases if not is_group_of(alias, namespace)),
        *(f"the instance {name}" for name in said.instances if _is_of_others(name, namespace, registered)),
        *(f"the zone {zone}" for zone in said.zones if not is_pool_of(zone, namespace)),
    ]
    if strange:
        raise ValueError(f"group {said.name} is said for the namespace {namespace}, and {strange[0]} is not of it")

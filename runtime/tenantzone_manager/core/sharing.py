"""Groups shared by several namespaces. A change for one namespace does not affect the settings of other namespaces.

A group has one quota for all namespaces. Each of its pools, aliases, zones and instances belongs to one namespace. The
names of pools, aliases and zones contain their namespace. An instance belongs to the namespace of the pool that
registered the instance. Therefore, the index need not store which namespace made a setting.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from tenantzone_contract.cache.cache_names import is_group_of
from tenantzone_manager.core.settings import Instance, InstanceGroup

Registered = Mapping[str, Instance | None]
"""Instances by name; None for instances that are not registered."""


def of_namespace(group: InstanceGroup, namespace: str, registered: Registered) -> InstanceGroup:
    """Returns a group with its common settings, but without pools, aliases and quotas of other namespaces."""
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
    """Returns a group after a change for one namespace.

    Args:
        known: the group before the change, or None if it is new.
        said: the new settings of the namespace.
        namespace: name of the namespace.
        registered: the instances with quotas in ``known`` or ``said``. Old quotas of instances with the value None
            are removed. Old quotas of instances without an entry are kept.

    Raises:
        ValueError: the new settings name an object of another namespace.
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
    """Returns whether a pool, NAMESPACE/POOL, or a zone, NAMESPACE/POOL/OWNER, is in this namespace."""
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
        raise ValueError(
            f"group {said.name}: settings for namespace {namespace} refer to {strange[0]}, which is not in that "
            "namespace; remove it from these settings"
        )

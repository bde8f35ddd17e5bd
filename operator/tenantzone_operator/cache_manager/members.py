"""Assigns pools and zones to KVCacheGroups, and service accounts to pools."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tenantzone_contract.cache.cache_names import is_instance_of, owner_part, pool_group, zone_group
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.cache_manager.declared import DeclaredGroup
from tenantzone_operator.kube.conditions import name_some
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.kube.store import Key

TAKEN: Final = "the older pool {other} also names the service account {account}; give each pool its own account"
MISSING: Final = "spec.tiers.manager does not name a service account; set serviceAccountName to the engines' account"


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a group."""

    pools: tuple[str, ...]
    """Pools whose engines may register instances in the group, as NAMESPACE/POOL."""
    aliases: tuple[str, ...]
    """Names by which engines address the group, derived from the names of pools and zones."""
    zones: Mapping[Key, Zone]
    """Existing TenantZones that the group names, by key."""
    problems: tuple[tuple[str, str], ...]
    """One pair of namespace and message for each pool or zone that the group names but that can't be a member."""


def service_accounts(pools: Iterable[Pool]) -> tuple[dict[str, str], dict[Key, str]]:
    """Returns the pool of each service account, and for each pool without a service account the reason.

    Service accounts and their pools are given as NAMESPACE/NAME, the other pools by key.

    A service account that two pools name belongs only to the older pool, so that the pools can't access each other's
    blocks.
    """
    owners: dict[str, str] = {}
    problems: dict[Key, str] = {}
    for pool in sorted(pools, key=lambda each: each.meta.age_order):
        key = (pool.meta.namespace, pool.meta.name)
        if pool.meta.deleting:
            continue
        if not pool.service_account:
            problems[key] = MISSING
            continue
        account = f"{pool.meta.namespace}/{pool.service_account}"
        if account in owners:
            problems[key] = TAKEN.format(other=owners[account], account=account)
        else:
            owners[account] = "/".join(key)
    return owners, problems


def members(
    groups: Iterable[DeclaredGroup],
    pools: Iterable[Pool],
    zones: Iterable[Zone],
    problems: Mapping[Key, str],
    namespace: str | None = None,
) -> dict[str, Members]:
    """Returns the members of each group, by the group's uid.

    A pool or zone that two groups name belongs to the older group.

    Args:
        groups: all groups.
        pools: all pools in the watched namespaces.
        zones: all zones in the watched namespaces.
        problems: the reasons why pools have no service account, by the pool's key.
        namespace: the only watched namespace; None for all. Pools and zones in other namespaces are left out.
    """
    known_pools = {(pool.meta.namespace, pool.meta.name) for pool in pools if not pool.meta.deleting}
    known_zones = {(zone.meta.namespace, zone.meta.name): zone for zone in zones if not zone.meta.deleting}
    taken: dict[str, str] = {}
    made = {}
    for group in sorted(groups, key=lambda each: each.meta.age_order):
        if not group.meta.deleting:
            served = group.within(namespace)
            made[group.meta.uid] = _members(served, known_pools, known_zones, problems, taken)
    return made


def with_members(group: DeclaredGroup, shared: Members) -> dict[str, Any]:
    """Returns the group for the manager's API, with the group's members and the zones' quotas."""
    made = {**group.wanted}
    if quotas := _zone_quotas(group, shared):
        made["zones"] = quotas
    if shared.pools:
        made["pools"] = list(shared.pools)
    if shared.aliases:
        made["aliases"] = list(shared.aliases)
    return made


def zone_rows(
    group: DeclaredGroup, shared: Members, instances: Sequence[Body], namespace: str | None = None
) -> list[dict[str, Any]]:
    """Returns status rows with the bytes that each zone of a group stores and reserves in each storage type.

    If the operator watches only one namespace, rows of zones in other namespaces are copied from the current status.
    """
    rows = []
    for quotas in group.zones:
        zone_namespace, name = quotas.zone
        if namespace not in (None, zone_namespace):
            known = group.status.get("zones", ())
            unknown = {"held": 0, "reserved": 0}
            rows += [unknown | row for row in known if (row["namespace"], row["name"]) == quotas.zone]
            continue
        zone = shared.zones.get(quotas.zone)
        held: dict[str, int] = dict.fromkeys(quotas.types, 0)
        for instance in _instances_of(zone, group, instances) if zone is not None else ():
            for kind, size in (instance.get("bytes_by_type") or {}).items():
                held[kind] = held.get(kind, 0) + size
        for kind, size in sorted(held.items()):
            reserved = quotas.types.get(kind, {}).get("reserved", 0)
            rows.append({"namespace": zone_namespace, "name": name, "type": kind, "held": size, "reserved": reserved})
    return rows


def namespace_rows(group: DeclaredGroup, shared: Members, namespace: str | None = None) -> list[dict[str, str]]:
    """Returns one status row for each namespace that a group names, with a message on pools and zones that can't join.

    If the operator watches only one namespace, the rows of other namespaces are copied from the current status.
    """
    known = {row["namespace"]: row for row in group.status.get("namespaces", ())}
    rows = []
    for each in group.namespaces:
        if namespace in (None, each):
            lines = [line for where, line in shared.problems if where == each]
            rows.append({"namespace": each, **({"message": name_some(lines, "; ")} if lines else {})})
        elif each in known:
            rows.append(known[each])
    return rows


def _members(
    group: DeclaredGroup,
    known_pools: set[Key],
    known_zones: Mapping[Key, Zone],
    problems: Mapping[Key, str],
    taken: dict[str, str],
) -> Members:
    pools: set[str] = set()
    aliases: dict[str, None] = {}
    zones: dict[Key, Zone] = {}
    lines: list[tuple[str, str]] = []

    def join(what: str, pool: Key, alias: str) -> bool:
        why = problems.get(pool) if pool in known_pools else "does not exist"
        if why is not None:
            line = f"ZonePool {'/'.join(pool)}{':' if pool in known_pools else ''} {why}"
            lines.append((pool[0], line))
            return False
        if taken.setdefault(alias, group.meta.name) != group.meta.name:
            lines.append((pool[0], f"{what} belongs to the older group {taken[alias]}"))
            return False
        pools.add("/".join(pool))
        aliases[alias] = None
        return True

    for namespace, name in group.pools:
        join(f"ZonePool {namespace}/{name}", (namespace, name), pool_group(namespace, name))
    for quotas in group.zones:
        what = f"TenantZone {'/'.join(quotas.zone)}"
        zone = known_zones.get(quotas.zone)
        if zone is None:
            lines.append((quotas.zone[0], f"{what} does not exist"))
        elif join(what, (zone.meta.namespace, zone.pool), zone_group(zone.meta.namespace, zone.pool, zone.tenant)):
            zones[quotas.zone] = zone
    return Members(tuple(sorted(pools)), tuple(aliases), zones, tuple(dict.fromkeys(lines)))


def _zone_quotas(group: DeclaredGroup, shared: Members) -> dict[str, dict[str, dict[str, int]]]:
    """Returns each zone's quotas by storage type, without default values; the keys are the manager's zone names."""
    quotas: dict[str, dict[str, dict[str, int]]] = {}
    for declared in group.zones:
        zone = shared.zones.get(declared.zone)
        if zone is not None and declared.types:
            name = f"{zone.meta.namespace}/{zone.pool}/{owner_part(zone.tenant)}"
            quotas[name] = {kind: _without_defaults(quota) for kind, quota in declared.types.items()}
    return quotas


def _instances_of(zone: Zone, group: DeclaredGroup, instances: Sequence[Body]) -> list[Body]:
    pool = f"{zone.meta.namespace}/{zone.pool}"
    return [
        each
        for each in instances
        if each["instance"]["group"] == group.meta.name
        and each["instance"].get("pool") == pool
        and is_instance_of(each["instance"]["name"], zone.tenant)
    ]


def _without_defaults(quota: Body) -> dict[str, int]:
    return {field: size for field, size in quota.items() if size or field == "limit"}

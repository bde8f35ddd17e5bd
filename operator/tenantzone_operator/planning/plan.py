"""Computes the next config snapshot for a pool's engines from the zones, the pool and the current snapshot."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import is_

from tenantzone_contract.zone_config.config import MAX_GENERATION, PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_operator.kube.conditions import Reason
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.planning.admission import AdmissionDecision, admit
from tenantzone_operator.planning.config_room import CHANGES_BYTES, ConfigRoom
from tenantzone_operator.planning.grants import Grants, agreed_grants, plausible_generation
from tenantzone_operator.planning.user_headers import granted_without_taken_headers, without_taken_headers


@dataclass(frozen=True, slots=True)
class Plan:
    """The config snapshot that a pool's engines should enforce next, and the decision on each zone."""

    config: RuntimeConfig | None
    """The snapshot that the engines should enforce; None to keep the current config."""
    decisions: Mapping[str, AdmissionDecision]
    """Decisions on the zones, by zone name."""
    pool_left_out: str = ""
    """Why the snapshot does not contain the pool's new settings; empty if it contains them."""


def make_plan(
    pool: Pool | None,
    zones: Sequence[Zone],
    *,
    in_force: RuntimeConfig | None,
    last_generation: int,
    size: int | None,
    room: ConfigRoom,
    seats: int | None = None,
    provisional: Collection[str] = frozenset(),
    is_confirmed: bool = True,
) -> Plan:
    """Plan the next snapshot of a pool.

    Args:
        pool: the pool; None if it does not exist.
        zones: all zones that name the pool.
        in_force: the last published snapshot; None if unknown.
        last_generation: the highest known generation that was ever published; 0 if unknown.
        size: the engine size that the plan assumes, in blocks; None if unknown.
        room: chooses the changes that fit into the pool's ConfigMap.
        seats: the maximum number of requests that these engines run at once; None if unknown.
        provisional: the names of zones whose entries were granted while no size was known.
        is_confirmed: whether ``in_force`` is a trusted record of the grants; otherwise the zones' statuses count, too.
    """
    if pool is None or pool.config is None:
        return Plan(None, {zone.meta.name: _poolless(zone, pool) for zone in zones})
    in_pool = without_taken_headers(zones, pool.config)
    grants = _grants_of(in_force) if is_confirmed else agreed_grants(zones, in_force)
    granted = granted_without_taken_headers(grants.entries, pool.config)
    # Keep the zones in the order of their acceptance, because an engine that is too small enforces the first zones.
    places = {name: place for place, name in enumerate(granted)}
    by_turn = sorted(zones, key=lambda zone: (places.get(zone.meta.name, len(places)), zone.meta.age_order))
    names = [zone.meta.name for zone in by_turn]
    shared, left_out = pool.config, frozenset[str]()
    shares = pool.config.tiers, seats, provisional, grants.doubtful
    while True:
        decisions = admit(in_pool, granted, size, left_out, *shares)
        entries = _entries(names, decisions)
        if _is_in_force(in_force, shared, entries):
            break
        choice = room.choose(pool.config, entries, in_force)
        if choice.pool is None:
            return Plan(None, admit(in_pool, granted, size, set(names), *shares), _POOL_TOO_LARGE)
        shared = choice.pool
        # Decide again, because changes that are left out neither free blocks nor use them.
        if choice.left_out <= left_out:
            break
        left_out |= choice.left_out
    refusal = _POOL_TOO_LARGE if shared != pool.config else ""
    if in_force is not None and _is_in_force(in_force, shared, entries):
        return Plan(_of_objects(in_force, entries), decisions, refusal)
    return Plan(make_config(_next_generation(in_force, last_generation), shared, entries), decisions, refusal)


def _grants_of(in_force: RuntimeConfig | None) -> Grants:
    """Returns the grants that a trusted snapshot records."""
    return Grants({entry.name: entry for entry in in_force.zones} if in_force is not None else {}, {})


def _of_objects(in_force: RuntimeConfig, entries: tuple[ZoneConfig, ...]) -> RuntimeConfig:
    """Returns the current snapshot with its entries replaced by the equal objects in ``entries``, to save memory."""
    if all(map(is_, in_force.zones, entries)):
        return in_force
    return in_force.model_copy(update={"zones": entries})


def _next_generation(in_force: RuntimeConfig | None, last: int) -> int:
    in_use = in_force.generation if in_force is not None else 0
    return max(plausible_generation(last), in_use if in_use < MAX_GENERATION - 1 else 0) + 1


_POOL_TOO_LARGE = (
    f"the pool's config would exceed {CHANGES_BYTES:,} compressed bytes of its ConfigMap; "
    f"shorten spec.unknownTenants.levels, or delete zones"
)


def _entries(names: Sequence[str], decisions: Mapping[str, AdmissionDecision]) -> tuple[ZoneConfig, ...]:
    entries = (decisions[name].entry for name in names)
    return tuple(entry for entry in entries if entry is not None)


def _is_in_force(in_force: RuntimeConfig | None, pool: PoolConfig, entries: tuple[ZoneConfig, ...]) -> bool:
    # Compare the objects, which is fast because they are usually identical. Hashing all entries would be slow.
    return in_force is not None and in_force.pool == pool and in_force.zones == entries


def leaving(zones: Sequence[Zone]) -> dict[str, AdmissionDecision]:
    """Returns the decisions on zones whose deletion waits for a finalizer, by name."""
    message = "the zone is being deleted, so the engines no longer enforce it; a finalizer delays the deletion"
    return {zone.meta.name: AdmissionDecision(Reason.DELETING, message, None) for zone in zones}


def not_served(zones: Sequence[Zone], why: str) -> dict[str, AdmissionDecision]:
    """Returns the decisions, by zone name, on the zones of a pool for which the operator lacks rights."""
    message = f"ZonePool {zones[0].pool} is not served: {why}" if zones else ""
    return {zone.meta.name: AdmissionDecision(Reason.POOL_NOT_SERVED, message, None) for zone in zones}


def _poolless(zone: Zone, pool: Pool | None) -> AdmissionDecision:
    if pool is None:
        message = f"there is no ZonePool {zone.pool} in namespace {zone.meta.namespace}; create it"
        return AdmissionDecision(Reason.POOL_NOT_FOUND, message, None)
    return AdmissionDecision(Reason.POOL_INVALID, f"ZonePool {zone.pool} is invalid: {pool.invalid}", None)

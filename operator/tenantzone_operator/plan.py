"""What a pool's engines should enforce: from zones, pool and the snapshot in force to the next snapshot. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenantzone_contract.config import MAX_GENERATION, PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.config_text import make_config
from tenantzone_operator.admission import Verdict, admit, has_its_tenant, stays
from tenantzone_operator.conditions import Reason
from tenantzone_operator.config_room import CHANGES_BYTES, NEW_ZONES_BYTES, ConfigRoom
from tenantzone_operator.resources import Pool, Zone


@dataclass(frozen=True, slots=True)
class Plan:
    config: RuntimeConfig | None
    """The snapshot that the engines should enforce; None: leave them what they have."""
    verdicts: Mapping[str, Verdict]
    """By zone name."""
    pool_left_out: str = ""
    """Why what the zones share stays as it is in force; empty if it does not have to."""


def make_plan(
    pool: Pool | None,
    zones: Sequence[Zone],
    *,
    in_force: RuntimeConfig | None,
    last_generation: int,
    size: int | None,
    room: ConfigRoom,
) -> Plan:
    """Plan the next snapshot.

    Args:
        pool: None if it does not exist.
        zones: all zones that name the pool.
        in_force: the snapshot that the engines were given last.
        last_generation: the highest one that was ever given out, as far as is known.
        size: blocks of the engines that the pool is planned for; None if nothing is known of them.
        room: in the pool's ConfigMap.
    """
    if pool is None or pool.config is None:
        return Plan(None, {zone.meta.name: _poolless(zone, pool) for zone in zones})
    granted = {entry.name: entry for entry in in_force.zones} if in_force is not None else {}
    verdicts = admit(zones, granted, size)
    # An engine that is too small for all has those that come first: who was accepted before stays before.
    places = {name: place for place, name in enumerate(granted)}
    by_turn = sorted(zones, key=lambda zone: (places.get(zone.meta.name, len(places)), zone.meta.age_order))
    names = [zone.meta.name for zone in by_turn]
    entries = _entries(names, verdicts)
    if _is_in_force(in_force, pool.config, entries):
        return Plan(in_force, verdicts)
    choice = room.choose(pool.config, entries, in_force)
    if choice.pool is None:
        accepted = [zone for zone in zones if verdicts[zone.meta.name].accepted]
        return Plan(None, verdicts | {zone.meta.name: _without_room(zone, {}) for zone in accepted}, _POOL_TOO_LARGE)
    verdicts |= {zone.meta.name: _without_room(zone, granted) for zone in zones if zone.meta.name in choice.left_out}
    entries = _entries(names, verdicts)
    left_out = _POOL_TOO_LARGE if choice.pool != pool.config else ""
    if _is_in_force(in_force, choice.pool, entries):
        return Plan(in_force, verdicts, left_out)
    known = last_generation if last_generation <= MAX_GENERATION else 0
    generation = max(known, in_force.generation if in_force is not None else 0) + 1
    return Plan(make_config(generation, choice.pool, entries), verdicts, left_out)


_POOL_TOO_LARGE = (
    f"with this, the pool's config would take more than {CHANGES_BYTES:,} bytes of its ConfigMap, compressed; "
    f"shorten spec.unknownTenants.levels, or delete zones"
)


def _entries(names: Sequence[str], verdicts: Mapping[str, Verdict]) -> tuple[ZoneConfig, ...]:
    told = (verdicts[name].entry for name in names)
    return tuple(entry for entry in told if entry is not None)


def _is_in_force(in_force: RuntimeConfig | None, pool: PoolConfig, entries: tuple[ZoneConfig, ...]) -> bool:
    # As objects, which are mostly the very same ones: a hash of all of them would cost more than the rest of the plan.
    return in_force is not None and in_force.pool == pool and in_force.zones == entries


def _without_room(zone: Zone, granted: Mapping[str, ZoneConfig]) -> Verdict:
    kept = granted[zone.meta.name] if has_its_tenant(zone, granted) else None
    max_bytes = NEW_ZONES_BYTES if kept is None else CHANGES_BYTES
    message = (
        f"the pool's config has no room for this: it would take more than {max_bytes:,} bytes of its ConfigMap, "
        f"compressed; name another ZonePool, or delete zones of this one"
    )
    return Verdict(Reason.CONFIG_TOO_LARGE, message + stays(kept), kept)


def leaving(zones: Sequence[Zone]) -> dict[str, Verdict]:
    """What to say of zones that were deleted and that somebody's finalizer holds, by name."""
    message = "it was deleted and is no part of the config any more; somebody's finalizer holds the object"
    return {zone.meta.name: Verdict(Reason.DELETING, message, None) for zone in zones}


def _poolless(zone: Zone, pool: Pool | None) -> Verdict:
    if pool is None:
        message = f"there is no ZonePool {zone.pool} in namespace {zone.meta.namespace}; create it"
        return Verdict(Reason.POOL_NOT_FOUND, message, None)
    return Verdict(Reason.POOL_INVALID, f"ZonePool {zone.pool} is invalid: {pool.invalid}", None)

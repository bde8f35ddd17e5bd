"""What a pool's engines should enforce: from zones, pool and the snapshot in force to the next snapshot. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenantzone_contract.config import MAX_GENERATION, RuntimeConfig, make_config
from tenantzone_operator.admission import Verdict, admit
from tenantzone_operator.conditions import Reason
from tenantzone_operator.resources import Pool, Zone


@dataclass(frozen=True, slots=True)
class Plan:
    config: RuntimeConfig | None
    """The snapshot that the engines should enforce; None: leave them what they have."""
    verdicts: Mapping[str, Verdict]
    """By zone name."""


def make_plan(
    pool: Pool | None,
    zones: Sequence[Zone],
    *,
    in_force: RuntimeConfig | None,
    last_generation: int,
    size: int | None,
) -> Plan:
    """Plan the next snapshot.

    Args:
        pool: None if it does not exist.
        zones: all zones that name the pool.
        in_force: the snapshot that the engines were given last.
        last_generation: the highest one that was ever given out, as far as is known.
        size: blocks of the engines that the pool is planned for; None if nothing is known of them.
    """
    if pool is None or pool.config is None:
        return Plan(None, {zone.meta.name: _poolless(zone, pool) for zone in zones})
    granted = {entry.name: entry for entry in in_force.zones} if in_force is not None else {}
    verdicts = admit(zones, granted, size)
    # An engine that is too small for all has those that come first: who was accepted before stays before.
    places = {name: place for place, name in enumerate(granted)}
    by_turn = sorted(zones, key=lambda zone: (places.get(zone.meta.name, len(places)), zone.meta.age_order))
    told = (verdicts[zone.meta.name].entry for zone in by_turn)
    entries = tuple(entry for entry in told if entry is not None)
    # As objects, which are mostly the very same ones: a hash of all of them would cost more than the rest of the plan.
    if in_force is not None and in_force.pool == pool.config and in_force.zones == entries:
        return Plan(in_force, verdicts)
    known = last_generation if last_generation <= MAX_GENERATION else 0
    generation = max(known, in_force.generation if in_force is not None else 0) + 1
    return Plan(make_config(generation, pool.config, entries), verdicts)


def leaving(zones: Sequence[Zone]) -> dict[str, Verdict]:
    """What to say of zones that were deleted and that somebody's finalizer holds, by name."""
    message = "it was deleted and is no part of the config any more; somebody's finalizer holds the object"
    return {zone.meta.name: Verdict(Reason.DELETING, message, None) for zone in zones}


def _poolless(zone: Zone, pool: Pool | None) -> Verdict:
    if pool is None:
        message = f"there is no ZonePool {zone.pool} in namespace {zone.meta.namespace}; create it"
        return Verdict(Reason.POOL_NOT_FOUND, message, None)
    return Verdict(Reason.POOL_INVALID, f"ZonePool {zone.pool} is invalid: {pool.invalid}", None)

"""Decides which zones fit into their pool. Older zones come first, and a newer request never revokes an earlier grant.

The current snapshot records all grants, so grants survive a restart. Grants also survive when an engine joins, leaves
or sends a false report: an engine that is too small applies the part of the config that fits
(`tenantzone_contract.zone_config.fitting`), and reports the blocks that it lacks.

Zones that were accepted before any engine reported its size have provisional grants. Once a size is known, the operator
decides again on these zones, after all final grants, by priority, then by age.

A grant that only the status or only the ConfigMap contains may be forged. Such a grant stays only if it fits in
addition to the grants that both contain.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.share import floor_blocks, percentage
from tenantzone_contract.zone_config.tiers import PoolTiers
from tenantzone_operator.kube.conditions import Reason
from tenantzone_operator.kube.resources import Zone
from tenantzone_operator.planning.config_room import CHANGES_BYTES, NEW_ZONES_BYTES
from tenantzone_operator.planning.contradictions import contradiction, depends_on_size
from tenantzone_operator.planning.grants import Evidence
from tenantzone_operator.planning.tier_budget import NO_TIERS, TierBudget

Share = int | str

_NOTHING_DOUBTFUL: Mapping[str, Evidence] = {}


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """The decision to accept or refuse one zone's spec, with the reason and the zone's config entry."""

    reason: Reason
    message: str
    entry: ZoneConfig | None
    """The zone's entry in the new snapshot, from the current or an earlier spec; None if the zone has no entry."""

    @property
    def accepted(self) -> bool:
        return self.reason in (Reason.ACCEPTED, Reason.ACCEPTED_PROVISIONALLY)


class Budget:
    """Adds up the reservations in an engine of the size that the plan assumes.

    Args:
        size: the engine's size in blocks; None if no engine's size is known. In that case, percentages count as blocks
            of an engine with 100 blocks, and numbers of blocks count as 0, because they can't be compared with a size.
        tiers: the engine's KV-cache tiers, as the pool declares them.
        seats: the maximum number of requests that the engine runs at once; None if unknown.
    """

    def __init__(self, size: int | None, tiers: PoolTiers = NO_TIERS, seats: int | None = None) -> None:
        self.is_provisional = size is None
        self.size = 100 if size is None else size
        self.tiers = TierBudget(tiers)
        self._contradiction = partial(contradiction, blocks=size, seats=seats, tiers=tiers)
        self.reserved = 0
        """Number of blocks that zones were granted so far."""

    @property
    def allocatable(self) -> int:
        """Number of blocks that can still be reserved."""
        return max(0, self.size - self.reserved)

    def contradiction(self, entry: ZoneConfig) -> str:
        """Returns the first contradiction between the entry's amounts in an engine of this size, or an empty text."""
        return self._contradiction(entry)

    def fits(self, share: Share) -> bool:
        return self.blocks(share) <= self.size - self.reserved or not self.blocks(share)

    def holds(self, entry: ZoneConfig) -> bool:
        """Returns whether the entry fits into the remaining blocks and tiers, and has no contradictory amounts."""
        fits = self.fits(entry.reserved) and self.tiers.missing(entry) is None
        return fits and not self.contradiction(entry)

    def asks_for_no_more(self, wanted: ZoneConfig, granted: ZoneConfig) -> bool:
        """Returns whether ``wanted`` reserves at most as many blocks, and as much of each tier, as ``granted``."""
        if self.blocks(wanted.reserved) > self.blocks(granted.reserved):
            return False
        return self.tiers.asks_for_no_more(wanted, granted)

    def take(self, entry: ZoneConfig) -> None:
        """Count the entry's reservations as granted."""
        self.reserved += self.blocks(entry.reserved)
        self.tiers.take(entry)

    def give_back(self, entry: ZoneConfig) -> None:
        self.reserved -= self.blocks(entry.reserved)
        self.tiers.give_back(entry)

    def blocks(self, share: Share) -> int:
        if self.is_provisional:
            return percentage(share) if isinstance(share, str) else 0
        return floor_blocks(share, self.size)


def admit(
    zones: Sequence[Zone],
    granted: Mapping[str, ZoneConfig],
    size: int | None,
    left_out: Collection[str] = frozenset(),
    tiers: PoolTiers = NO_TIERS,
    seats: int | None = None,
    provisional: Collection[str] = frozenset(),
    doubtful: Mapping[str, Evidence] = _NOTHING_DOUBTFUL,
) -> dict[str, AdmissionDecision]:
    """Returns the decisions on all zones of a pool, by zone name.

    Args:
        zones: all zones of the pool, in any order.
        granted: the entries of the current snapshot, by zone name. They stay, whatever sizes engines report.
        size: the engine size that the plan assumes, in blocks; None if unknown.
        left_out: the names of zones whose change does not fit into the ConfigMap. Such a zone keeps its old entry, so
            the change neither frees nor uses blocks.
        tiers: the KV-cache tiers of each engine, as the pool declares them.
        seats: the maximum number of requests that these engines run at once; None if unknown.
        provisional: the names of zones whose entries were granted while no size was known.
        doubtful: where the grant was found, by zone name, for zones whose grant only the status or only the ConfigMap
            contains.
    """
    by_age = sorted(zones, key=lambda zone: zone.meta.age_order)
    budget = Budget(size, tiers, seats)
    owners: dict[str, str] = {}
    # A zone with a grant keeps its tenant, even against a zone that was created in the same second and sorts first by
    # name.
    by_claim = sorted(by_age, key=lambda zone: (not _has_its_tenant(zone, granted), _evidence(zone, doubtful)))
    for zone in by_claim:
        owners.setdefault(zone.tenant, zone.meta.name)
    rivals = {zone.meta.name: owners[zone.tenant] for zone in by_age if owners[zone.tenant] != zone.meta.name}
    contenders = [zone for zone in by_age if zone.meta.name not in rivals]
    kept = _keep(contenders, granted, budget, left_out, provisional, doubtful)
    decisions = {}
    for zone in contenders:
        entry = kept.get(zone.meta.name)
        is_left_out = zone.meta.name in left_out
        is_settled = zone.meta.name not in provisional and zone.meta.name not in doubtful
        is_final = is_settled and granted.get(zone.meta.name) == zone.config
        decisions[zone.meta.name] = _without_room(entry) if is_left_out else _decide(zone, entry, budget, is_final)
    for zone in by_age:
        if zone.meta.name in rivals:
            decisions[zone.meta.name] = _conflict(zone, rivals[zone.meta.name])
    return decisions


def _has_its_tenant(zone: Zone, granted: Mapping[str, ZoneConfig]) -> bool:
    """Returns whether the zone has a grant for the tenant that its spec names now."""
    entry = granted.get(zone.meta.name)
    return entry is not None and entry.tenant == zone.tenant


def _evidence(zone: Zone, doubtful: Mapping[str, Evidence]) -> Evidence:
    """Returns where the zone's grant, if any, was found."""
    return doubtful.get(zone.meta.name, Evidence.BOTH)


def _keep(
    zones: Sequence[Zone],
    granted: Mapping[str, ZoneConfig],
    budget: Budget,
    left_out: Collection[str],
    provisional: Collection[str],
    doubtful: Mapping[str, Evidence],
) -> dict[str, ZoneConfig]:
    """First pass of `admit`: keep existing grants, and reduce grants whose spec now asks for less.

    Doubtful grants stay only if they fit. Once a size is known, the same applies to provisional grants.
    """
    kept: dict[str, ZoneConfig] = {}
    claimed: list[tuple[Zone, ZoneConfig]] = []
    undecided: list[tuple[Zone, ZoneConfig]] = []
    for zone in zones:
        if not _has_its_tenant(zone, granted):
            continue
        entry = granted[zone.meta.name]
        wanted = zone.config if zone.meta.name not in left_out else None
        if wanted is not None and budget.asks_for_no_more(wanted, entry) and not budget.contradiction(wanted):
            entry = wanted
        if zone.meta.name in provisional and not budget.is_provisional:
            undecided.append((zone, entry))
        elif _evidence(zone, doubtful) != Evidence.BOTH:
            claimed.append((zone, entry))
        else:
            budget.take(entry)
            kept[zone.meta.name] = entry
    claimed.sort(key=lambda found: _evidence(found[0], doubtful))
    undecided.sort(key=lambda found: (-found[1].priority, found[0].meta.age_order))
    for zone, entry in claimed + undecided:
        is_asked_for = _evidence(zone, doubtful) != Evidence.CONFIG or _is_within_spec(entry, zone, budget)
        if is_asked_for and budget.holds(entry):
            budget.take(entry)
            kept[zone.meta.name] = entry
    return kept


def _is_within_spec(entry: ZoneConfig, zone: Zone, budget: Budget) -> bool:
    """Returns whether an entry reserves at most what its zone's spec asks for; False if the spec is invalid."""
    return zone.config is not None and budget.asks_for_no_more(entry, zone.config)


def _decide(zone: Zone, kept: ZoneConfig | None, budget: Budget, is_final: bool) -> AdmissionDecision:
    """Second pass of `admit`: decide on new zones and increases with the blocks that remain.

    Args:
        zone: the zone as stored in the API server.
        kept: the zone's entry after the first pass; None if the zone has no grant.
        budget: the grants of all zones so far.
        is_final: whether the zone's current spec was granted while a size was known.
    """
    wanted = zone.config
    if wanted is None:
        return AdmissionDecision(Reason.INVALID, zone.invalid + _stays(kept), kept)
    if kept is wanted or kept == wanted:
        return _welcome(wanted, budget, is_final)
    if found := budget.contradiction(wanted):
        return AdmissionDecision(Reason.INVALID, found + _stays(kept), kept)
    if kept is not None:
        budget.give_back(kept)
    missing = budget.tiers.missing(wanted)
    if budget.fits(wanted.reserved) and missing is None:
        budget.take(wanted)
        return _welcome(wanted, budget, is_final)
    fits = budget.fits(wanted.reserved)
    message = missing.message(zone.pool) if fits and missing else _overcommitted(wanted.reserved, budget)
    if kept is not None:
        budget.take(kept)
    return AdmissionDecision(Reason.POOL_OVERCOMMITTED, message + _stays(kept), kept)


def _welcome(entry: ZoneConfig, budget: Budget, is_final: bool) -> AdmissionDecision:
    if not budget.is_provisional or is_final or not depends_on_size(entry):
        return AdmissionDecision(Reason.ACCEPTED, "valid, and fits into the pool", entry)
    wanted = f"{entry.reserved} blocks fit" if isinstance(entry.reserved, int) and entry.reserved else "the zone fits"
    decided = f"the operator will decide later whether {wanted}, by priority, then by age"
    message = f"valid; no engine has reported its size yet, so {decided}"
    return AdmissionDecision(Reason.ACCEPTED_PROVISIONALLY, message, entry)


def _overcommitted(reserved: Share, budget: Budget) -> str:
    left, size = budget.allocatable, budget.size
    missing = budget.blocks(reserved) - left
    if budget.is_provisional:
        return (
            f"reserved is {reserved}, but only {left}% is left, which is {missing}% too little; "
            f"lower reserved to {left}%, or lower reserved of other zones"
        )
    wanted = f"{reserved}, which is {left + missing} blocks" if isinstance(reserved, str) else f"{reserved} blocks"
    return (
        f"reserved is {wanted}, but only {left} of an engine's {size} blocks are left, which is {missing} too few; "
        f"lower reserved to {left} ({100 * left // size}%), or lower reserved of other zones"
    )


def _without_room(kept: ZoneConfig | None) -> AdmissionDecision:
    max_bytes = NEW_ZONES_BYTES if kept is None else CHANGES_BYTES
    message = (
        f"the pool's config would exceed {max_bytes:,} compressed bytes of its ConfigMap; "
        f"choose another ZonePool, or delete zones of this ZonePool"
    )
    return AdmissionDecision(Reason.CONFIG_TOO_LARGE, message + _stays(kept), kept)


def _conflict(zone: Zone, owner: str) -> AdmissionDecision:
    message = f"TenantZone {owner} already has the tenant {zone.tenant}; delete one of the two TenantZones"
    return AdmissionDecision(Reason.TENANT_CONFLICT, message, None)


def _stays(kept: ZoneConfig | None) -> str:
    """Returns a sentence to append to a refusal if an earlier generation of the zone stays in force; else empty."""
    return f". Generation {kept.generation} stays in force" if kept is not None else ""

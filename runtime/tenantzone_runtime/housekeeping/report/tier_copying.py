"""Copies the state and counters that zones have in an engine's tiers, between steps. The module uses ``copying``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple

from tenantzone_contract.reports.tier_effect import TierWindow
from tenantzone_contract.reports.words import EvictionReason
from tenantzone_contract.zone_config.tiers import SHARED_TIER, AnyTierName
from tenantzone_runtime.housekeeping.engine import ServedEngine, ServedSharedTier, ServedTier
from tenantzone_runtime.housekeeping.report import copying
from tenantzone_runtime.housekeeping.report.copying import held, in_slices
from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.zones.model.counters import evicted_by_reason
from tenantzone_runtime.zones.model.flat import put_mapping, take, take_mapping
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.tier_counts import QuestionOutcome, TierCounts, TierTotals

_COUNTED: Final = tuple(each.name for each in fields(TierCounts) if each.name not in ("refused_writes", "totals"))
_read_counts = attrgetter(*_COUNTED)
_NOTHING: Final = TierCounts()


class TierZoneCopy(NamedTuple):
    """The state of one zone in one tier at one moment. Amounts are in chunks."""

    tenant: str
    reserved: int
    limit: int
    awaited: int
    """Part of the reservation that the tier does not grant yet, because it does not fit."""
    held: int
    chunk_seconds: float
    evictions: Mapping[EvictionReason, int]
    counts: TierCounts
    """A copy of the zone's counters."""
    window: TierWindow | None = None
    """The zone's use of the tier in the last evaluated window of time; None if there was none."""
    is_ineffective: bool = False
    """Whether the tier is of little use to the zone, because the zone loads little of the data that it stores there."""


@dataclass(frozen=True, slots=True)
class TierCopy:
    """The state of one tier and of its zones."""

    name: AnyTierName
    chunk_bytes: int
    chunk_count: int
    """Number of chunks for which the tier has room; 0 for a shared tier."""
    held: int
    """Number of chunks that zones hold."""
    problem: str
    totals: TierTotals
    """A copy of the tier's counters, summed over all zones."""
    zones: Mapping[str, TierZoneCopy]
    """The state of each zone in the tier, by tenant."""
    questions: Mapping[QuestionOutcome, int] | None = None
    """Number of queries to the KV-cache manager, by outcome; None for a tier that is not shared."""


def copy_tiers(engine: ServedEngine) -> list[TierCopy]:
    """Returns copies of all tiers of an engine. The caller must not hold the engine's lock."""
    return [
        *(_copy_tier(engine, served) for served in engine.tiers),
        *(_copy_shared(engine, served) for served in engine.shared_tiers),
    ]


def _copy_tier(engine: ServedEngine, served: ServedTier) -> TierCopy:
    tier = served.tier
    with held(engine.zone_lock):
        zones, chunks = list(tier.ledger.zones.values()), tier.ledger.held_blocks
        totals = tier.totals.copy()

    def put(some: Sequence[Zone], values: list[Any]) -> None:
        now = tier.ledger.now
        for zone in some:
            if not zone.leaving:
                tier.ledger.accrue(zone)
                counts = tier.counts.get(zone, _NOTHING)
                values += (zone.spec, zone.held, zone.counters.block_seconds)
                values += (tier.admission.window(zone, now), tier.admission.is_ineffective(zone, now))
                values += _read_counts(counts)
                put_mapping(values, counts.refused_writes)
                put_mapping(values, zone.counters.evictions)

    copies = {
        copied.tenant: copied
        for values in in_slices(engine.zone_lock, zones, put, copying.ZONES_AT_ONCE)
        for copied in _taken(iter(values))
    }
    return TierCopy(tier.name, tier.chunk_bytes, tier.chunk_count, chunks, served.problem, totals, copies)


def _taken(values: Iterator[Any]) -> Iterator[TierZoneCopy]:
    for spec in values:
        held_chunks, chunk_seconds, window, is_ineffective = take(values, 4)
        counts = _take_counts(values)
        yield TierZoneCopy(
            spec.tenant,
            spec.quota.reserved,
            spec.quota.limit,
            spec.awaited,
            held_chunks,
            chunk_seconds,
            evicted_by_reason(take_mapping(values)),
            counts,
            window,
            is_ineffective,
        )


def _copy_shared(engine: ServedEngine, served: ServedSharedTier) -> TierCopy:
    with held(engine.zone_lock):
        zones, figures = list(served.zones.values()), served.figures()
    size = figures.object_bytes

    def put(some: Sequence[SharedZone], values: list[Any]) -> None:
        for zone in some:
            values += (zone.tenant, zone.held_bytes)
            values += _read_counts(zone.counts)
            put_mapping(values, zone.counts.refused_writes)

    def taken(values: Iterator[Any]) -> Iterator[TierZoneCopy]:
        for tenant in values:
            (held_bytes,) = take(values, 1)
            # Report zeros, because only the manager knows the zone's limit in storages and the zone's evictions.
            yield TierZoneCopy(tenant, 0, 0, 0, held_bytes // size, 0.0, {}, _take_counts(values))

    copies = {
        copied.tenant: copied
        for values in in_slices(engine.zone_lock, zones, put, copying.ZONES_AT_ONCE)
        for copied in taken(iter(values))
    }
    return TierCopy(
        SHARED_TIER,
        size,
        0,
        figures.held_bytes // size,
        figures.problem,
        figures.totals,
        copies,
        figures.questions,
    )


def _take_counts(values: Iterator[Any]) -> TierCounts:
    numbers = dict(zip(_COUNTED, take(values, len(_COUNTED)), strict=True))
    return TierCounts(**numbers, refused_writes=take_mapping(values))

"""Converts copies of an engine's tiers to parts of the report, and to parts of the figures for a scrape."""

from tenantzone_contract.reports.report import TierReport
from tenantzone_contract.reports.zone_report import TierEffectReport, ZoneTierReport
from tenantzone_runtime.housekeeping.report.tier_copying import TierCopy, TierZoneCopy
from tenantzone_runtime.metrics.figures import TierFigures, ZoneTierFigures


def tier_report(tier: TierCopy) -> TierReport:
    """Returns the report of one tier, for all zones together."""
    return TierReport(
        tier=tier.name,
        capacity_bytes=tier.chunk_count * tier.chunk_bytes,
        held_bytes=tier.held * tier.chunk_bytes,
        chunk_bytes=tier.chunk_bytes,
        problem=tier.problem,
    )


def zone_tier_report(tier: TierCopy, zone: TierZoneCopy) -> ZoneTierReport:
    """Returns the report of one zone in one tier."""
    size, counts = tier.chunk_bytes, zone.counts
    return ZoneTierReport(
        tier=tier.name,
        reserved_bytes=zone.reserved * size,
        limit_bytes=zone.limit * size,
        held_bytes=zone.held * size,
        awaited_bytes=zone.awaited * size,
        hits=counts.hits,
        evictions=sum(zone.evictions.values()),
        writes_refused=counts.writes_refused,
        writes_refused_within_reservation=counts.refused_writes.get("reserved", 0),
        stored_bytes=counts.written * size,
        loaded_bytes=counts.hits * size,
        not_admitted_bytes=counts.not_admitted * size,
        effect=_effect_report(tier, zone),
        corrupt=counts.corrupt,
        byte_seconds=zone.chunk_seconds * size,
    )


def _effect_report(tier: TierCopy, zone: TierZoneCopy) -> TierEffectReport | None:
    if zone.window is None:
        return None
    return TierEffectReport(
        offered_bytes=zone.window.offered * tier.chunk_bytes,
        loaded_bytes=zone.window.loaded * tier.chunk_bytes,
        ineffective=zone.is_ineffective,
    )


def tier_figures(tier: TierCopy) -> TierFigures:
    """Returns the figures of one tier for a scrape, for all zones together."""
    return TierFigures(
        tier=tier.name,
        capacity_bytes=tier.chunk_count * tier.chunk_bytes,
        held_bytes=tier.held * tier.chunk_bytes,
        chunk_bytes=tier.chunk_bytes,
        problem=tier.problem,
        totals=tier.totals,
        questions=tier.questions,
    )


def zone_tier_figures(tier: TierCopy, zone: TierZoneCopy) -> ZoneTierFigures:
    """Returns the figures of one zone in one tier, for a scrape."""
    return ZoneTierFigures(
        tier=tier.name,
        chunk_bytes=tier.chunk_bytes,
        reserved=zone.reserved,
        limit=zone.limit,
        held=zone.held,
        chunk_seconds=zone.chunk_seconds,
        evictions=zone.evictions,
        counts=zone.counts,
    )

"""The figures of a scrape, which are immutable, so that another thread can encode them while steps run.

The figures of one zone are consistent with each other; those of different zones may be taken at different times.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tenantzone_contract.reports.report import ConfigStatus, EvictionReason, ZoneState
from tenantzone_contract.zone_config.tiers import AnyTierName
from tenantzone_runtime.zones.audit.events import RefusalReason
from tenantzone_runtime.zones.model.counters import Counters
from tenantzone_runtime.zones.model.outcomes import TargetName, TargetOutcome
from tenantzone_runtime.zones.tiers.tier_counts import QuestionOutcome, TierCounts, TierTotals

ReloadResult = Literal["applied", "rejected"]


class ZoneTierFigures(NamedTuple):
    """The figures of one zone in one tier."""

    tier: AnyTierName
    chunk_bytes: int
    reserved: int
    """Number of chunks reserved for the zone. The other amounts below are in chunks, too."""
    limit: int
    held: int
    chunk_seconds: float
    evictions: Mapping[EvictionReason, int]
    counts: TierCounts
    """The counters, as an immutable copy."""


class ZoneFigures(NamedTuple):
    """The figures of one zone, or the sum of the zones in the overflow zone."""

    name: str
    tenant: str
    in_use: int
    cached: int
    reserved: int
    limit: int
    lent: int
    borrowed: int
    overdue: int
    short: int
    """Number of reserved blocks that the zone lacks while its next request waits for blocks of other zones."""
    loans: int
    """Number of loans with this zone as the lender."""
    waiting_requests: int
    running_requests: int
    weight: int
    priority: int
    state: ZoneState
    outcomes: Mapping[TargetName, TargetOutcome]
    """The outcomes of the zone's latency targets."""
    counters: Counters
    """The counters, as an immutable copy."""
    tiers: tuple[ZoneTierFigures, ...] = ()
    """The zone's figures in tiers; empty for the overflow zone, whose chunks are part of the tier's own figures."""


class TierFigures(NamedTuple):
    """The figures of one tier, summed over all zones."""

    tier: AnyTierName
    capacity_bytes: int
    """Capacity in bytes; 0 for a shared tier."""
    held_bytes: int
    chunk_bytes: int
    problem: str
    """The current problem that keeps the tier from storing or loading; empty if it works."""
    totals: TierTotals
    """The counters, as an immutable copy."""
    questions: Mapping[QuestionOutcome, int] | None = None
    """Number of queries to the KV-cache manager by outcome; None for a tier without a manager."""


class StepFigures(NamedTuple):
    """The actual and the predicted durations of the steps that had a prediction."""

    steps: int
    actual_seconds: float
    predicted_seconds: float
    error_seconds: float
    """Sum of the absolute prediction errors."""


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """The figures of one engine and all its zones."""

    engine_version: str
    pod: str
    pool: str
    """Name of the pool in the config in force; empty if no config is in force."""
    pool_namespace: str
    capacity_blocks: int
    free_blocks: int
    block_size_tokens: int
    started_unix_time: float
    taken_unix_time: float
    config: ConfigStatus
    reloads: Mapping[ReloadResult, int]
    refusals: Mapping[RefusalReason, int]
    refused_at_admin_port: int
    """Number of requests to the admin port without a valid token."""
    steps: StepFigures
    tiers: tuple[TierFigures, ...]
    zones: tuple[ZoneFigures, ...]

"""The figures for one scrape. They are immutable, so that another thread can encode them while steps run.

The figures of one zone are from the same moment. The figures of different zones may be from different moments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.reports.words import EvictionReason, ZoneState
from tenantzone_contract.zone_config.tiers import AnyTierName
from tenantzone_runtime.zones.audit.events import RefusalReason
from tenantzone_runtime.zones.model.counters import Counters
from tenantzone_runtime.zones.model.outcomes import TargetName, TargetOutcome
from tenantzone_runtime.zones.tiers.tier_counts import QuestionOutcome, TierCounts, TierTotals

ReloadResult = Literal["applied", "rejected"]


class ZoneTierFigures(NamedTuple):
    """The figures of one zone in one tier. Amounts are in chunks."""

    tier: AnyTierName
    chunk_bytes: int
    reserved: int
    limit: int
    held: int
    chunk_seconds: float
    evictions: Mapping[EvictionReason, int]
    counts: TierCounts
    """A copy of the zone's counters in the tier."""


class ZoneFigures(NamedTuple):
    """The figures of one zone, or of the overflow zone, which is the sum of its members. Amounts are in blocks."""

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
    """Number of reserved blocks that the zone does not hold, while its next request waits for blocks; otherwise 0."""
    loans: int
    """Number of loans that the zone has given."""
    waiting_requests: int
    running_requests: int
    weight: int
    priority: int
    state: ZoneState
    outcomes: Mapping[TargetName, TargetOutcome]
    """The latencies that the zone's requests get, by latency target."""
    counters: Counters
    """A copy of the zone's counters."""
    tiers: tuple[ZoneTierFigures, ...] = ()
    """The zone's figures in each tier; empty for the overflow zone, whose chunks count only in `TierFigures`."""


class TierFigures(NamedTuple):
    """The figures of one tier, summed over all zones."""

    tier: AnyTierName
    capacity_bytes: int
    """Capacity in bytes; 0 for a shared tier."""
    held_bytes: int
    chunk_bytes: int
    problem: str
    """The reason why the tier can't store or load now; empty if it can."""
    totals: TierTotals
    """A copy of the tier's counters, summed over all zones."""
    questions: Mapping[QuestionOutcome, int] | None = None
    """Number of queries to the KV-cache manager, by outcome; None for a tier without a manager."""


class StepFigures(NamedTuple):
    """The number, the actual times and the predicted times of all steps whose time was predicted."""

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

"""The figures that a scrape tells, immutable so that another thread can tell them while steps go on.

The numbers of one zone are of one moment; two zones may be of two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tenantzone_contract.report import ConfigStatus, EvictionReason, ZoneState
from tenantzone_contract.tiers import AnyTierName
from tenantzone_runtime.zones.audit import RefusalReason
from tenantzone_runtime.zones.counters import Counters
from tenantzone_runtime.zones.outcomes import TargetName, TargetOutcome
from tenantzone_runtime.zones.tier_counts import QuestionOutcome, TierCounts, TierTotals

ReloadResult = Literal["applied", "rejected"]


class ZoneTierFigures(NamedTuple):
    """The figures of one zone in one tier."""

    tier: AnyTierName
    chunk_bytes: int
    reserved: int
    """Chunks, as all that follows."""
    limit: int
    held: int
    chunk_seconds: float
    evictions: Mapping[EvictionReason, int]
    counts: TierCounts
    """A copy that nobody changes."""


class ZoneFigures(NamedTuple):
    """The figures of one zone, or of all zones of the overflow added up."""

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
    """Blocks of the reservation that the zone does not hold, although its next request waits for blocks of others."""
    loans: int
    """As lender."""
    waiting_requests: int
    running_requests: int
    weight: int
    priority: int
    state: ZoneState
    outcomes: Mapping[TargetName, TargetOutcome]
    """What became of its latency targets."""
    counters: Counters
    """A copy that nobody changes."""
    tiers: tuple[ZoneTierFigures, ...] = ()
    """None of the overflow: what its zones hold in tiers is among what the tier holds."""


class TierFigures(NamedTuple):
    """The figures of one tier, whoever uses it."""

    tier: AnyTierName
    capacity_bytes: int
    """0 of a shared tier."""
    held_bytes: int
    chunk_bytes: int
    problem: str
    """What keeps it from storing or loading now; empty: nothing."""
    totals: TierTotals
    """A copy that nobody changes."""
    questions: Mapping[QuestionOutcome, int] | None = None
    """To the KV-cache manager; None: the tier has none."""


class StepFigures(NamedTuple):
    """How long steps took, and how long they were predicted to; of those that were predicted."""

    steps: int
    actual_seconds: float
    predicted_seconds: float
    error_seconds: float
    """What predictions were wrong by, too short or too long, added up."""


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """The figures of one engine and all its zones."""

    engine_version: str
    pod: str
    pool: str
    """Of the config in force; empty if none is."""
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
    """Requests to the admin port without a token that is in force."""
    steps: StepFigures
    tiers: tuple[TierFigures, ...]
    zones: tuple[ZoneFigures, ...]

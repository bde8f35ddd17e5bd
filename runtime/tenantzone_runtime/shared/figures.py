"""The statistics that the shared tier reports."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenantzone_runtime.zones.tiers.tier_counts import QuestionOutcome, TierTotals


@dataclass(frozen=True, slots=True)
class SharedFigures:
    """The shared tier's statistics for all zones together, at one moment."""

    object_bytes: int
    """Size of a chunk in a storage, in bytes."""
    held_bytes: int
    """Number of bytes that all engines have stored for the zones of the config."""
    problem: str
    """A message that says why the tier can't store or load; empty if it can."""
    questions: Mapping[QuestionOutcome, int]
    """Number of queries that the tier sent to the manager on behalf of requests, by outcome."""
    totals: TierTotals
    """A copy of the tier's counters, summed over all zones."""

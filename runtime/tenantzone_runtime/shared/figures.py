"""The shared tier's figures at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenantzone_runtime.zones.tiers.tier_counts import QuestionOutcome, TierTotals


@dataclass(frozen=True, slots=True)
class SharedFigures:
    """The figures of the tier for all zones."""

    object_bytes: int
    """Size of a chunk in a storage."""
    held_bytes: int
    """Number of bytes that all engines have stored for the zones of the config."""
    problem: str
    questions: Mapping[QuestionOutcome, int]
    """Number of requests' queries to the manager, by outcome."""
    totals: TierTotals
    """A copy of the tier's totals."""

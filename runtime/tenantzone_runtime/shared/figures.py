"""What the shared tier tells of itself, of one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenantzone_runtime.zones.tier_counts import QuestionOutcome, TierTotals


@dataclass(frozen=True, slots=True)
class SharedFigures:
    """The tier, whoever uses it."""

    object_bytes: int
    """What a chunk takes of a storage."""
    held_bytes: int
    """Of all zones of the config, by all engines."""
    problem: str
    questions: Mapping[QuestionOutcome, int]
    """Of all requests, to the manager."""
    totals: TierTotals
    """A copy that nobody changes."""

"""The shared tier's figures at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenantzone_runtime.zones.tier_counts import QuestionOutcome, TierTotals


@dataclass(frozen=True, slots=True)
class SharedFigures:
    """The figures of the tier for all zones."""

    object_bytes: int
    """The size of a chunk in a storage."""
    held_bytes: int
    """Bytes of all zones of the config, by all engines."""
    problem: str
    questions: Mapping[QuestionOutcome, int]
    """Queries of all requests to the manager, by outcome."""
    totals: TierTotals
    """An immutable copy."""

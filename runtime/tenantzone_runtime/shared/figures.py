"""What the shared tier tells of itself, of one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.zones.tier_counts import QuestionOutcome, TierCounts


@dataclass(frozen=True, slots=True)
class SharedZoneFigures:
    """One zone of the config."""

    held_bytes: int
    """By all engines of the pool."""
    in_transfer: int
    """Chunks of this engine."""
    counts: TierCounts
    """Of this engine; a copy that nobody changes."""


@dataclass(frozen=True, slots=True)
class SharedFigures:
    """The tier, and each zone of the config."""

    object_bytes: int
    """What a chunk takes of a storage."""
    problem: str
    questions: Mapping[QuestionOutcome, int]
    """Of all requests, to the manager."""
    zones: dict[str, SharedZoneFigures] = field(default_factory=dict)
    """By tenant."""

    @property
    def held_bytes(self) -> int:
        """Of all zones."""
        return sum(zone.held_bytes for zone in self.zones.values())


def figures_of(
    object_bytes: int, problem: str, questions: Mapping[QuestionOutcome, int], zones: Mapping[str, SharedZone]
) -> SharedFigures:
    """The figures of a tier with these zones."""
    return SharedFigures(object_bytes, problem, questions, {tenant: _of_zone(zone) for tenant, zone in zones.items()})


def _of_zone(zone: SharedZone) -> SharedZoneFigures:
    counts = replace(zone.counts, refused_writes=dict(zone.counts.refused_writes))
    return SharedZoneFigures(zone.held_bytes, zone.storing + zone.loading, counts)

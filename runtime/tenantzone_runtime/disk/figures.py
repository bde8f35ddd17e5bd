"""What the disk tier counts: figures of each zone and of the disk."""

from dataclasses import dataclass, field

from tenantzone_runtime.zones.tier_counts import TierCounts


@dataclass(frozen=True, slots=True)
class ZoneFigures:
    """One zone on the disk."""

    held_bytes: int
    reserved_bytes: int
    limit_bytes: int
    in_transfer: int
    """Chunks."""
    evictions: dict[str, int]
    """Chunks, by reason."""
    counts: TierCounts


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """The disk, and each zone that has something there or may have."""

    capacity_bytes: int
    held_bytes: int
    is_open: bool
    """Whether what was there at the start is known, and what belongs to nobody is gone."""
    writes_fail: bool
    """Whether the disk refuses writes; one is tried now and then."""
    reads_fail: bool
    breaker_openings: int
    leftovers: int
    """Files removed at the start: half written, of another size, or no chunk's."""
    found: int
    """Chunks of an engine before this one that are there again."""
    removals_failed: int
    zones: dict[str, ZoneFigures] = field(default_factory=dict)
    """By tenant."""


@dataclass(slots=True)
class Receipt:
    """What became of a zone's files in a purge, or when the zone went."""

    tenant: str
    purge: str
    """Its id; empty: the zone went."""
    chunks: int
    """That were found no more from then on."""
    files: int = 0
    """That were removed from the disk."""
    is_complete: bool = False
    """Whether all are removed."""

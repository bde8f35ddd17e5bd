"""The disk tier's figures, by zone and in total."""

from dataclasses import dataclass, field

from tenantzone_runtime.zones.tier_counts import TierCounts


@dataclass(frozen=True, slots=True)
class ZoneFigures:
    """The figures of one zone on the disk."""

    held_bytes: int
    reserved_bytes: int
    limit_bytes: int
    in_transfer: int
    """Chunks in transfer."""
    evictions: dict[str, int]
    """Evicted chunks, by reason."""
    counts: TierCounts


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """The figures of the disk, and of each zone that has or may have chunks there."""

    capacity_bytes: int
    held_bytes: int
    is_open: bool
    """Whether the contents at the start are known, and files of no zone are gone."""
    writes_fail: bool
    """Whether the disk refuses writes; one is tried periodically."""
    reads_fail: bool
    leftovers: int
    """Files removed at the start: half written, of another size, or not a chunk's."""
    found: int
    """Chunks that an earlier engine stored and that were adopted."""
    removals_failed: int
    zones: dict[str, ZoneFigures] = field(default_factory=dict)
    """The figures of zones, by tenant."""


@dataclass(slots=True)
class Receipt:
    """The outcome of a purge or of a zone's removal for the zone's files."""

    tenant: str
    purge: str
    """The id of the purge; empty if the zone was removed."""
    chunks: int
    """Chunks that could not be found any more from then on."""
    files: int = 0
    """Files that were removed from the disk."""
    is_complete: bool = False
    """Whether all files are removed."""

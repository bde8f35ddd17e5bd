"""The disk tier's figures, by zone and in total."""

from dataclasses import dataclass, field

from tenantzone_runtime.zones.tiers.tier_counts import TierCounts


@dataclass(frozen=True, slots=True)
class ZoneFigures:
    """The figures of one zone on the disk."""

    held_bytes: int
    reserved_bytes: int
    limit_bytes: int
    in_transfer: int
    """Number of chunks in transfer."""
    evictions: dict[str, int]
    """Number of evicted chunks, by reason."""
    counts: TierCounts


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """The figures of the disk, and of each zone that has or may have chunks there."""

    capacity_bytes: int
    held_bytes: int
    is_open: bool
    """Whether the disk was listed, and files that belong to no zone were removed."""
    writes_fail: bool
    """Whether writes fail, so that only probes are written periodically."""
    reads_fail: bool
    leftovers: int
    """Number of files removed at the start because they were incomplete, of the wrong size, or not chunks."""
    found: int
    """Number of chunks of an earlier engine that were adopted."""
    removals_failed: int
    zones: dict[str, ZoneFigures] = field(default_factory=dict)
    """The figures of zones, by tenant."""


@dataclass(slots=True)
class Receipt:
    """The result of a purge, or of a zone's removal, for the zone's files."""

    tenant: str
    purge: str
    """Id of the purge; empty if the zone was removed."""
    chunks: int
    """Number of chunks that the purge or removal made unavailable."""
    files: int = 0
    """Number of files that were removed from the disk."""
    is_complete: bool = False
    """Whether all files were removed."""

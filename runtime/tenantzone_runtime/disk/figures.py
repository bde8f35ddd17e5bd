"""The statistics that the disk tier reports, for each zone and in total."""

from dataclasses import dataclass, field

from tenantzone_runtime.zones.tiers.tier_counts import TierCounts


@dataclass(frozen=True, slots=True)
class ZoneFigures:
    """The disk tier's statistics of one zone."""

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
    """The disk tier's statistics, in total and for each zone."""

    capacity_bytes: int
    held_bytes: int
    is_open: bool
    """Whether chunks may be stored: the disk was listed, and files that belong to no zone were removed."""
    writes_fail: bool
    """Whether the circuit breaker of writes is open, so that only periodic probes are written."""
    reads_fail: bool
    leftovers: int
    """Number of files that were removed at engine start because they were not complete chunks."""
    found: int
    """Number of adopted chunks: a previous engine process wrote them, and zones got them at the start."""
    removals_failed: int
    zones: dict[str, ZoneFigures] = field(default_factory=dict)
    """Each zone's statistics, by tenant."""


@dataclass(slots=True)
class Receipt:
    """The result of removing a zone's files after a purge, or after the zone was removed."""

    tenant: str
    purge: str
    """Id of the purge; empty if the zone was removed."""
    chunks: int
    """Number of chunks that the purge or removal made unavailable."""
    files: int = 0
    """Number of files that were removed from the disk."""
    is_complete: bool = False
    """Whether all files were removed."""

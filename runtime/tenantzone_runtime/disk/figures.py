"""What the disk tier counts: figures for reports, of each zone and of the disk."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Of one zone, in chunks since it was declared."""

    hits: int = 0
    """That were looked up and are there."""
    misses: int = 0
    """That were looked up and are not."""
    written: int = 0
    read: int = 0
    writes_refused: int = 0
    """For which the zone had no room, or too much on its way."""
    reads_refused: int = 0
    """That were there, and not read because the zone has too much on its way or the disk fails."""
    corrupt: int = 0
    """Changed, cut off, swapped or another's."""
    vanished: int = 0
    """Whose files were not there any more."""
    write_failures: int = 0
    """That the disk refused."""
    read_failures: int = 0
    late: int = 0
    """That were not done when they had to be."""


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
    counts: Counts


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

"""A tier's counts for one zone, in chunks since the zone was created."""

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

WriteRefusal = Literal["reserved", "room", "transfers", "closed"]
"""Why a chunk was not stored.

reserved: the zone would still be within its reservation, and others have its chunks in transfer. room: its limit, or
promises to others and their transfers. transfers: the most of its chunks are being stored. closed: the tier stores
nothing now, or lacks the chunks before it in the prompt.
"""

QuestionOutcome = Literal["answered", "late", "failed", "skipped"]
"""The outcome of a request's query, if a tier has to be asked for its contents. late: it was not answered within its
budget. failed: the answer was an error. skipped: it was not asked, because others had failed.
"""

Loss = Literal["corrupt", "vanished", "write", "read", "late"]
"""How a chunk was lost. corrupt: it is not what was stored: changed, cut off, swapped or another's. vanished: it did
not exist any more. write, read: the storage refused it. late: it was not done in time.
"""

LOSSES: Final[tuple[Loss, ...]] = get_args(Loss)


@dataclass(slots=True)
class TierTotals:
    """The totals of one tier over all zones that it ever had, which never decrease, even when a zone is removed."""

    written: int = 0
    """As in :class:`TierCounts`; so are the others."""
    corrupt: int = 0
    refused_writes: dict[WriteRefusal, int] = field(default_factory=dict)

    def copy(self) -> "TierTotals":
        return TierTotals(self.written, self.corrupt, self.refused_writes.copy())


@dataclass(slots=True)
class TierCounts:
    """The totals of one zone in one tier, which never decrease."""

    hits: int = 0
    """Chunks that were found and whose loading began."""
    misses: int = 0
    """Chunks that were looked up and not found, if the tier itself is asked."""
    written: int = 0
    """Chunks that were stored."""
    not_admitted: int = 0
    """Chunks that were not stored because of the zone's admission policy."""
    read: int = 0
    """Chunks that were loaded whole, if the tier checks it."""
    reads_refused: int = 0
    """Chunks that were found, and not read because the zone has too many in transfer or the tier fails."""
    refused_writes: dict[WriteRefusal, int] = field(default_factory=dict)
    """Chunks that were not stored, without zeros."""
    corrupt: int = 0
    """Chunks by :data:`Loss`; so are the others."""
    vanished: int = 0
    write_failures: int = 0
    read_failures: int = 0
    late: int = 0
    totals: TierTotals = field(default_factory=TierTotals, compare=False, repr=False)
    """The tier's totals, which count the same events."""

    @property
    def writes_refused(self) -> int:
        """Chunks that were not stored, for any reason."""
        return sum(self.refused_writes.values())

    @property
    def losses(self) -> dict[Loss, int]:
        """Lost chunks, by the kind of loss."""
        counts = (self.corrupt, self.vanished, self.write_failures, self.read_failures, self.late)
        return dict(zip(LOSSES, counts, strict=True))

    def refuse_writes(self, reason: WriteRefusal, chunks: int) -> None:
        """Count chunks that were not stored."""
        if chunks > 0:
            self.refused_writes[reason] = self.refused_writes.get(reason, 0) + chunks
            self.totals.refused_writes[reason] = self.totals.refused_writes.get(reason, 0) + chunks

    def note_written(self, chunks: int) -> None:
        """Count chunks that were stored."""
        self.written += chunks
        self.totals.written += chunks

    def note_corrupt(self) -> None:
        """Count one chunk that is not what was stored."""
        self.corrupt += 1
        self.totals.corrupt += 1

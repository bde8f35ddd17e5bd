"""A tier's counts for one zone, in chunks since the zone was created."""

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

WriteRefusal = Literal["reserved", "room", "transfers", "closed"]
"""Why a chunk was not stored.

reserved: the zone is below its reservation, but other zones have too many chunks in transfer. room: the chunk does not
fit the zone's limit, or the room that other zones' promises and transfers leave. transfers: the zone already stores as
many chunks as it may at once. closed: the tier stores nothing now, or lacks the chunks before it in the prompt.
"""

QuestionOutcome = Literal["answered", "late", "failed", "skipped"]
"""Outcome of a request's query to a tier that must be asked for its contents. late: the answer did not arrive within
the time budget. failed: the answer was an error. skipped: no query was sent, because earlier queries had failed.
"""

Loss = Literal["corrupt", "vanished", "write", "read", "late"]
"""How a chunk was lost. corrupt: its bytes are not those that were stored, because they were changed, truncated or
swapped, or belong to another zone. vanished: it did not exist any more. write, read: the storage refused the operation.
late: the transfer did not end in time.
"""

LOSSES: Final[tuple[Loss, ...]] = get_args(Loss)


@dataclass(slots=True)
class TierTotals:
    """The totals of one tier over all zones that it ever had, which never decrease, even when a zone is removed."""

    written: int = 0
    """All fields have the same meaning as in :class:`TierCounts`."""
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
    """Chunks that were looked up and not found; counted only if the tier itself is asked."""
    written: int = 0
    """Chunks that were stored."""
    not_admitted: int = 0
    """Chunks that were not stored because of the zone's admission policy."""
    read: int = 0
    """Chunks that were loaded intact; counted only if the tier verifies them."""
    reads_refused: int = 0
    """Chunks that were found but not read, because the zone has too many chunks in transfer or the tier fails."""
    refused_writes: dict[WriteRefusal, int] = field(default_factory=dict)
    """Chunks that were not stored, by reason. Zeros are left out."""
    corrupt: int = 0
    """Lost chunks. This field and the next four correspond to the values of :data:`Loss`."""
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
        """Count one corrupt chunk."""
        self.corrupt += 1
        self.totals.corrupt += 1

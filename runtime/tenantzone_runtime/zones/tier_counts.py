"""What a tier counts of one zone, in chunks since the zone came."""

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

WriteRefusal = Literal["reserved", "room", "transfers", "closed"]
"""Why a chunk was not stored.

reserved: the zone would still have been within its reservation, and what others hold of it is in transfer. room: its
limit, or what others are promised or transfer. transfers: as many of its chunks are being stored as may. closed: the
tier stores nothing now, or has not what comes before it in the prompt.
"""

QuestionOutcome = Literal["answered", "late", "failed", "skipped"]
"""What became of the question of a request, where a tier has to ask what it has. late: it was not answered within its
budget. failed: the answer was an error. skipped: it was not asked, because others had failed.
"""

Loss = Literal["corrupt", "vanished", "write", "read", "late"]
"""What became of a chunk instead. corrupt: it is not what was stored: changed, cut off, swapped or another's. vanished:
it was not there any more. write, read: the storage refused it. late: it was not done when it had to be.
"""

LOSSES: Final[tuple[Loss, ...]] = get_args(Loss)


@dataclass(slots=True)
class TierTotals:
    """The totals of one tier over all zones that it ever had, which never decrease, also when a zone is removed."""

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
    """Chunks that were found and began to be loaded."""
    misses: int = 0
    """That were looked up and are not there, where that is asked of the tier itself."""
    written: int = 0
    """That were stored."""
    not_admitted: int = 0
    """That were not stored because of the zone's terms of admission."""
    read: int = 0
    """That were loaded whole, where the tier checks it."""
    reads_refused: int = 0
    """That were there, and not read because the zone has too much on its way or the tier fails."""
    refused_writes: dict[WriteRefusal, int] = field(default_factory=dict)
    """That were not stored, without those that are zero."""
    corrupt: int = 0
    """As :data:`Loss` says; so are the others."""
    vanished: int = 0
    write_failures: int = 0
    read_failures: int = 0
    late: int = 0
    totals: TierTotals = field(default_factory=TierTotals, compare=False, repr=False)
    """Of the tier, which count the same."""

    @property
    def writes_refused(self) -> int:
        """For whatever reason."""
        return sum(self.refused_writes.values())

    @property
    def losses(self) -> dict[Loss, int]:
        """All that was lost, by what became of it."""
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

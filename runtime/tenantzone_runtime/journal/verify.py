"""Verifies all records of a journal, and summarizes it."""

from dataclasses import dataclass
from pathlib import Path

from tenantzone_runtime.journal.progress import Progress
from tenantzone_runtime.journal.reading import NoJournalError, read_journal
from tenantzone_runtime.journal.record import CutOff, Link
from tenantzone_runtime.zones.audit.events import Lost


class HeadNotFoundError(ValueError):
    """All records are valid, but none has the expected hash."""


@dataclass(slots=True)
class Verified:
    """The summary of a valid journal, from its oldest remaining record to its newest record."""

    first: Link
    first_time: str
    head: Link
    """Link of the newest record."""
    head_time: str
    lost: int = 0
    """Number of records that the journal reports as lost."""
    cut_off: int = 0
    """Number of records that report lines truncated by a crash."""
    noted: int | None = None
    """Sequence number of the record with the expected hash; None if no hash was given."""

    @property
    def records(self) -> int:
        return self.head.seq - self.first.seq + 1

    def lines(self) -> list[str]:
        """Returns the summary as lines of text."""
        said = [
            f"{self.records} records are valid, {self.first.seq} to {self.head.seq}",
            f"from {self.first_time} to {self.head_time}",
            f"head {self.head.hash}",
        ]
        if self.first.seq:
            said.append(f"the journal does not begin at record 0; records 0 to {self.first.seq - 1} are missing")
        if self.lost:
            said.append(f"the journal reports that {self.lost} records were lost before they could be written")
        if self.cut_off:
            said.append(f"the journal reports {self.cut_off} places where a crash truncated a line")
        if self.noted is not None:
            said.append(f"the noted hash is that of record {self.noted}")
        return said


def verify(folder: Path, noted: str | None = None) -> Verified:
    """Verify all records of a journal, and print the progress to standard error.

    Args:
        folder: the folder of the journal.
        noted: a hash that one of the records must have, noted elsewhere when that record was the newest; None to skip
            this check.

    Raises:
        NoJournalError: the folder has no journal.
        BrokenJournalError: a record fails verification.
        HeadNotFoundError: all records are valid, but none has the hash ``noted``.
        OSError: a file can't be read.
    """
    seen: Verified | None = None
    progress = Progress(folder)
    for entry in read_journal(folder):
        record = entry.record
        time = str(record.get("time"))
        if seen is None:
            seen = Verified(entry.link, time, entry.link, time)
            if noted == record.get("previous"):
                seen.noted = entry.link.seq - 1
        seen.head, seen.head_time = entry.link, time
        if record.get("kind") == Lost.kind and isinstance(record.get("records"), int):
            seen.lost += record["records"]
        seen.cut_off += record.get("kind") == CutOff.kind
        if noted == entry.link.hash:
            seen.noted = entry.link.seq
        progress.at(entry)
    if seen is None:
        raise NoJournalError(f"the journal in {folder} has no records")
    if noted is not None and seen.noted is None:
        raise HeadNotFoundError(
            f"records {seen.first.seq} to {seen.head.seq} are valid, but none of them has the hash {noted}; after "
            "the hash was noted, the journal's end was cut off, the journal was rewritten, or the file was deleted "
            "to save room"
        )
    return seen

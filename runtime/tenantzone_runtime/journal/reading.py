"""Reads a journal from its oldest file to its newest file, and verifies each record and the chain of hashes."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tenantzone_runtime.journal.files import journal_files
from tenantzone_runtime.journal.record import BEFORE_FIRST, CutOff, Link, link_of, parse

_LONGEST_LINE: Final = 2**20


class NoJournalError(ValueError):
    """The folder contains no journal, or a journal without records."""


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a line in a journal: the name of the file, and the line number, from 1."""

    file: str
    line: int


class BrokenJournalError(ValueError):
    """The journal was changed or damaged. The message names the first line that fails verification."""

    def __init__(self, place: Place, named: str, what: str) -> None:
        self.place = place
        super().__init__(f"{place.file} line {place.line} ({named}): {what}")


class EndCutOffError(BrokenJournalError):
    """The journal's last line is truncated, for example by a crash. All lines before it are valid."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A valid record of a journal, with its position."""

    place: Place
    record: dict[str, Any]
    link: Link
    bytes_read: int
    """Number of bytes of the journal up to and including this record."""


class _NoRecords:
    """Consecutive lines that are not records. They are an error, unless the next record reports them as truncated."""

    def __init__(self, place: Place, before: Link | None, what: str) -> None:
        named = "no record" if before is None else f"where record {before.seq + 1} should be"
        self.problem = place, named, f"the line is not a complete record: {what}"
        self._content, self._bytes = hashlib.sha256(), 0

    def add(self, line: bytes) -> None:
        self._content.update(line)
        self._bytes += len(line)

    def are_named_by(self, record: dict[str, Any]) -> bool:
        named = record.get("kind"), record.get("bytes"), record.get("digest")
        return named == (CutOff.kind, self._bytes, self._content.hexdigest())


def read_journal(folder: Path) -> Iterator[Entry]:
    """Iterate over the records of a journal in order, and verify each record.

    If the first remaining record is not record 0, its link to the previous record can't be verified.

    Raises:
        NoJournalError: the folder has no journal.
        BrokenJournalError: a record fails verification.
        OSError: a file can't be read.
    """
    before: Link | None = None
    cut_off: _NoRecords | None = None
    bytes_read = 0
    for place, line in _lines(folder):
        bytes_read += len(line)
        try:
            record = parse(line)
        except ValueError as error:
            cut_off = cut_off or _NoRecords(place, before, str(error))
            cut_off.add(line)
            continue
        if cut_off and not cut_off.are_named_by(record):
            raise BrokenJournalError(*cut_off.problem)
        link = _checked(place, record, before)
        if cut_off is None and record.get("kind") == CutOff.kind:
            raise BrokenJournalError(
                place, f"record {link.seq}", "the truncated lines that this record reports were deleted"
            )
        before, cut_off = link, None
        yield Entry(place, record, link, bytes_read)
    if cut_off:
        raise EndCutOffError(*cut_off.problem)


def _checked(place: Place, record: dict[str, Any], before: Link | None) -> Link:
    named = f"record {record.get('seq')}"
    try:
        link = link_of(record)
    except ValueError as error:
        raise BrokenJournalError(place, named, str(error)) from error
    if before and link.seq != before.seq + 1:
        raise BrokenJournalError(place, named, _out_of_order(link.seq, before.seq))
    known = before or (BEFORE_FIRST if link.seq == 0 else None)
    if known and record.get("previous") != known.hash:
        raise BrokenJournalError(
            place, named, "the record's link does not match the previous record, so one of the two was replaced"
        )
    return link


def _out_of_order(seq: int, before: int) -> str:
    if seq <= before:
        return f"the record follows record {before}, so it was moved or copied"
    if seq == before + 2:
        return f"record {before + 1} is missing before this one"
    return f"records {before + 1} to {seq - 1} are missing before this one"


def _lines(folder: Path) -> Iterator[tuple[Place, bytes]]:
    files = journal_files(folder)
    if not files:
        raise NoJournalError(f"there is no journal in {folder}")
    for path in files:
        number, whole = 0, True
        with path.open("rb") as file:
            # Read very long lines in parts, so that a bad file can't exhaust the memory. No valid record is that long.
            while line := file.readline(_LONGEST_LINE):
                number += whole
                whole = line.endswith(b"\n")
                yield Place(path.name, number), line

"""Manages the journal's numbered files. One engine at a time appends to the newest file. Files are rotated by size."""

import fcntl
import hashlib
import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tenantzone_contract.line_files import LineFile
from tenantzone_runtime.journal.record import BEFORE_FIRST, CutOff, Link, link_of, parse

_PREFIX, _SUFFIX = "journal-", ".jsonl"
_CHUNK = 2**20


def journal_files(folder: Path) -> list[Path]:
    """Returns the files of a journal, the oldest first.

    Raises:
        OSError: the folder can't be read.
    """
    return sorted((path for path in folder.iterdir() if _number_of(path)), key=_number_of)


@dataclass(frozen=True, slots=True)
class End:
    """The end of a journal when it was opened."""

    link: Link
    """The link of the last valid record."""
    cut_off: CutOff | None = None
    """The invalid lines after the last valid record; None if there are none."""


class JournalFiles:
    """The files of a journal that is open for appending.

    Args:
        folder: the journal's folder. It is created if it is missing.
        max_bytes: the maximum size of a file in bytes. Only a file with a single larger record may be larger.
        keep: the number of files to keep, including the newest file; 0 for all files.

    Raises:
        OSError: the folder can't be written, or another engine has opened the journal in it.
    """

    def __init__(self, folder: Path, *, max_bytes: int, keep: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._max_bytes = max_bytes
        self._keep = keep
        self._file: LineFile | None = None
        self._folder_file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._lock()
            files = journal_files(folder)
            self._file = LineFile(files[-1] if files else _path_of(folder, 1))
            self.end = self._find_end(files)
        except BaseException:
            self.close()
            raise

    def append(self, line: bytes) -> None:
        """Write one line completely or not at all.

        Raises:
            OSError: the line could not be written. The caller must close the journal, and open the journal again.
        """
        file = self._file
        assert file is not None, "the journal is open"
        if not file.is_usable:
            raise FileNotFoundError(f"{file.path} was deleted or moved")
        if not file.has_room(line, self._max_bytes):
            file = self._rotate(file)
        # If only a part of the line is written, the next process that opens the journal records a truncated line.
        file.append([line], self._max_bytes)

    def close(self) -> None:
        """Close the journal, and first sync its files to the disk if possible."""
        if self._file is not None:
            with suppress(OSError):
                self._file.sync()
            self._file.close()
            self._file = None
        with suppress(OSError):
            os.fsync(self._folder_file)
        os.close(self._folder_file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._folder_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(
                error.errno, "another engine writes the journal in this folder; give each engine a folder of its own"
            ) from error

    def _rotate(self, full: LineFile) -> LineFile:
        full.sync()
        full.close()
        self._file = None
        self._file = file = LineFile(_path_of(self._folder, _number_of(full.path) + 1))
        os.fsync(self._folder_file)
        if self._keep:
            for path in journal_files(self._folder)[: -self._keep]:
                path.unlink()
        return file

    def _find_end(self, files: list[Path]) -> End:
        link, behind = BEFORE_FIRST, list[tuple[Path, int]]()
        for path in reversed(files):
            found, sound_until = _last_sound(path)
            if sound_until < path.stat().st_size:
                behind.insert(0, (path, sound_until))
            if found:
                link = found
                break
        return End(link, _what_stands(behind))


def _number_of(path: Path) -> int:
    """Returns the number in the name of a journal's file; 0 if the name is not that of a journal's file."""
    digits = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(digits) if digits.isdecimal() and path.name == f"{_PREFIX}{digits}{_SUFFIX}" else 0


def _path_of(folder: Path, number: int) -> Path:
    return folder / f"{_PREFIX}{number:08d}{_SUFFIX}"


def _what_stands(behind: list[tuple[Path, int]]) -> CutOff | None:
    """Returns an event that describes the invalid content; None if there is none.

    Args:
        behind: files with invalid content, each with the offset at which this content begins.
    """
    content, number = hashlib.sha256(), 0
    for path, begin in behind:
        with path.open("rb") as file:
            file.seek(begin)
            while chunk := file.read(_CHUNK):
                content.update(chunk)
                number += len(chunk)
    return CutOff(number, content.hexdigest()) if number else None


def _last_sound(path: Path) -> tuple[Link | None, int]:
    """Returns the link of a file's last valid record, and the offset of its end; (None, 0) if no record is valid."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None, 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            end = len(content)
            while end > 0:
                begin = content.rfind(b"\n", 0, end - 1) + 1
                with suppress(ValueError):
                    return link_of(parse(content[begin:end])), end
                end = begin
    return None, 0

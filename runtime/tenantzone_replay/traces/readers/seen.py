"""Makes all reads of a trace return the same contents, even if other processes still write to its files."""

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from tenantzone_replay.traces.load import TraceError

_TRIES: Final = 10
"""Maximum number of attempts to list or find files while they are being renamed."""
_END_BYTES: Final = 4096
"""Number of bytes at the beginning and at the end of a file that are hashed to identify the file."""


@dataclass(frozen=True, slots=True)
class _File:
    device: int
    inode: int
    size: int = field(compare=False)


class Seen:
    """A snapshot of the files of one trace. Every read returns the contents that the first read returned.

    Data that other processes append later is ignored. A file that is renamed within its folder is found by its inode.
    """

    def __init__(self) -> None:
        self._names: list[Path] | None = None
        self._files: dict[Path, _File | None] = {}
        self._ends: dict[Path, bytes] = {}
        self._now: dict[_File, Path] = {}
        """Current paths of files that have been renamed."""
        self.warned: set[str] = set()
        """Kinds of warnings about the trace that have been printed."""

    def names(self, folder: Path, pattern: str) -> list[Path]:
        """Returns the paths that matched ``pattern`` in a folder when they were first listed."""
        if self._names is None:
            for _ in range(_TRIES):
                self._files = _files(folder, pattern)
                # Rotation may rename files during a listing. If two listings are equal, the first is consistent.
                if self._files == _files(folder, pattern):
                    break
            self._names = list(self._files)
        return self._names

    @contextmanager
    def opened(self, path: Path) -> Iterator[BinaryIO]:
        """Opens a file for reading. The stream ends at the length that the file had at the first read.

        Raises:
            OSError: the file can't be read.
            TraceError: the file no longer exists, or its content has changed.
        """
        first = self._files.get(path)
        if first is not None and not first.size:
            yield io.BytesIO()
            return
        with path.open("rb", buffering=0) if first is None else _found(path, first, self._now) as file:
            if first is None:
                first = self._files[path] = _file(os.fstat(file.fileno()))
            ends = _ends(file, first.size)
            if self._ends.setdefault(path, ends) != ends:
                raise _changed(path)
            yield io.BufferedReader(_UpTo(file, first.size, path))


class _UpTo(io.RawIOBase):
    """A stream of the first ``size`` bytes of a file."""

    def __init__(self, file: io.FileIO, size: int, path: Path) -> None:
        self._file = file
        self._left = size
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = memoryview(buffer)[: self._left]
        read = self._file.readinto(part)
        if not read and len(part):
            raise _changed(self._path)
        self._left -= read
        return read


def _files(folder: Path, pattern: str) -> dict[Path, _File | None]:
    found: dict[Path, _File | None] = {}
    for path in sorted(folder.glob(pattern)):
        found[path] = None
        # Ignore errors here, because opening the file will report them.
        with suppress(OSError):
            state = path.stat()
            found[path] = _file(state) if stat.S_ISREG(state.st_mode) else None
    return found


def _file(state: os.stat_result) -> _File:
    return _File(state.st_dev, state.st_ino, state.st_size)


def _found(path: Path, wanted: _File, now: dict[_File, Path]) -> io.FileIO:
    for _ in range(_TRIES):
        for candidate in (path, now.get(wanted)):
            if candidate is not None and (file := _opened_if(candidate, wanted)):
                return file
        # The file has neither its original nor its last known path, so look up the current paths of all files.
        for other in path.parent.iterdir():
            with suppress(OSError):
                now[_file(other.stat())] = other
    raise _changed(path)


def _opened_if(path: Path, wanted: _File) -> io.FileIO | None:
    with suppress(FileNotFoundError):
        if _file(path.stat()) == wanted:
            file = path.open("rb", buffering=0)
            if _file(os.fstat(file.fileno())) == wanted:
                return file
            file.close()
    return None


def _ends(file: io.FileIO, size: int) -> bytes:
    """Returns a hash of the beginning and the end of a file, to identify the file together with its inode number.

    The inode number alone does not suffice, because another file may get the number of a removed file.
    """
    digest = hashlib.blake2b(file.read(min(size, _END_BYTES)))
    file.seek(max(0, size - _END_BYTES))
    digest.update(file.read(min(size, _END_BYTES)))
    file.seek(0)
    return digest.digest()


def _changed(path: Path) -> TraceError:
    return TraceError(
        f"{path}: the file was removed, compressed or rewritten during the replay; "
        f"if another process still writes the trace, replay a copy"
    )

"""The files of events. New events are appended to FILE, which is rotated to FILE.1, FILE.2 and so on."""

import errno
import fcntl
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path


def older_files(path: Path) -> list[tuple[int, Path]]:
    """Returns the numbers and paths of the rotated files, newest (1) first.

    Raises:
        OSError: the folder can't be read.
    """
    found = []
    for each in path.parent.iterdir():
        stem, _, number = each.name.rpartition(".")
        if stem == path.name and number.isdecimal() and not number.startswith("0"):
            found.append((int(number), each))
    return sorted(found)


class EventFiles:
    """The files to which one manager appends events.

    A lock on FILE.lock keeps other processes from writing to the files until :meth:`close`.

    Args:
        path: path of FILE. If it exists, events are appended.
        max_bytes: maximum size of a file. A single longer line is still written.
        keep: maximum number of files, including FILE.

    Raises:
        OSError: the file can't be written, or another manager writes to it.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._lock = self._file = -1
        self._size = 0
        self._is_torn = False
        try:
            self._lock_files()
            self._open()
        except BaseException:
            self.close()
            raise

    def append(self, lines: Sequence[bytes]) -> int:
        """Write as many lines as fit into one file.

        Returns:
            The number of completely written lines, at least 1. They are the first of ``lines``.

        Raises:
            OSError: no line was written.
        """
        if self._is_torn or not self._is_in_place():
            self._close_file()
            self._open()
        if self._size and self._size + len(lines[0]) > self._max_bytes:
            self._rotate()
        ends = list(accumulate(map(len, lines)))
        count = max(1, bisect_right(ends, self._max_bytes - self._size))
        data = memoryview(b"".join(lines[:count]))
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            count = bisect_right(ends, written)
            self._is_torn = True
            if not count:
                raise
        self._size += written
        return count

    def close(self) -> None:
        """Close the file and release the lock."""
        self._close_file()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock_files(self) -> None:
        """Lock FILE.lock, because two processes that rotate the same files would lose events of each other."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = f"{self._path}.lock"
        self._lock = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(
                errno.EBUSY, "another manager writes events to this file; give each manager its own file", lock
            ) from None

    def _is_in_place(self) -> bool:
        """Returns whether the open file is still FILE. The file or its folder may have been removed or renamed."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            # A crash or a full disk has truncated the last line. It must not be joined with the next line.
            self._size += os.write(self._file, b"\n")
        self._is_torn = False

    def _rotate(self) -> None:
        """Delete the oldest files, rename the others, and open a new FILE."""
        self._close_file()
        for number, path in reversed(older_files(self._path)):
            if number >= self._keep - 1:
                path.unlink()
            else:
                path.rename(f"{self._path}.{number + 1}")
        if self._keep > 1:
            self._path.rename(f"{self._path}.1")
        else:
            self._path.unlink()
        self._open()

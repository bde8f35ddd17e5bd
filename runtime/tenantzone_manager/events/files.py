"""The files of events: FILE is written on, FILE.1, FILE.2 and so on are older ones, of which few stay."""

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path


def older_files(path: Path) -> list[tuple[int, Path]]:
    """What was FILE once, by number, the newest (1) first.

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
    """Open files of one manager, to append to.

    Args:
        path: FILE; it is made, or written on.
        max_bytes: size beyond which a file does not grow, unless by a single line.
        keep: how many files there are at most, FILE among them.

    Raises:
        OSError: it can't be written.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._file = -1
        self._size = 0
        self._is_torn = False
        self._open()

    def append(self, lines: Sequence[bytes]) -> int:
        """Hand lines to the operating system, as many as fit into one file.

        Returns:
            How many, from the first one, are written as a whole; one at least.

        Raises:
            OSError: it took none.
        """
        if self._is_torn:
            self.close()
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
        """Write no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._file).st_size
        try:
            if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
                # A crash, or a full disk, has cut the last line off; it must not spoil the next one.
                self._size += os.write(self._file, b"\n")
        except BaseException:
            self.close()
            raise
        self._is_torn = False

    def _rotate(self) -> None:
        """The oldest go, so that there is room for a new file, and the others are named anew."""
        self.close()
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

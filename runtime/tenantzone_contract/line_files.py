"""Appends lines, such as JSON Lines, to files of this process. Each line is written completely or not at all."""

import os
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Final

_MODE: Final = 0o640


class LineFile:
    """A file that is open for appending lines.

    If a crash has truncated the last line, a newline is added, so that the next line is not joined with that line.

    Args:
        path: the file's path. A missing file or folder is created.
        mode: the permissions of a new file before the umask is applied.

    Raises:
        OSError: the file can't be written.
    """

    def __init__(self, path: Path, mode: int = _MODE) -> None:
        self.path = path
        self._is_torn = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            if self.size and not _ends_a_line(path):
                os.write(self._file, b"\n")
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Size of the file in bytes. Read each time, because another process may truncate the file to rotate it."""
        return os.fstat(self._file).st_size

    @property
    def is_usable(self) -> bool:
        """Whether lines may be appended. False if the file was removed or renamed, or ends in a partial line."""
        try:
            return not self._is_torn and os.path.samestat(self.path.stat(), os.fstat(self._file))
        except OSError:
            return False

    def has_room(self, line: bytes, max_bytes: int) -> bool:
        """Returns whether a line fits if the file may have ``max_bytes`` bytes. An empty file has room for any line."""
        size = self.size
        return not size or size + len(line) <= max_bytes

    def append(self, lines: Sequence[bytes], max_bytes: int) -> int:
        """Write the first line, and as many more lines as fit while the file has at most ``max_bytes`` bytes.

        Returns:
            The number of written lines, counted from the first of ``lines``.

        Raises:
            OSError: no line was written.
        """
        size, ends = self.size, list(accumulate(map(len, lines)))
        count = max(1, bisect_right(ends, max_bytes - size))
        data = memoryview(b"".join(lines[:count]))
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            count = bisect_right(ends, written)
            written = ends[count - 1] if count else 0
            self._is_torn = True
            with suppress(OSError):
                os.ftruncate(self._file, size + written)
                self._is_torn = False
            if not count:
                raise
        return count

    def sync(self) -> None:
        """Flush the file to the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class RotatedLines:
    """Lines that are appended to FILE, which is rotated to FILE.1, FILE.2 and so on.

    If FILE was removed or renamed, a new FILE is created.

    Args:
        path: path of FILE. If FILE exists, lines are appended.
        max_bytes: maximum size of a file. A longer line is written to a file of its own.
        keep: maximum number of files, including FILE.
        mode: the permissions of a new file before the umask is applied.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int, mode: int = _MODE) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._mode = mode
        self._file: LineFile | None = None

    def open(self) -> LineFile:
        """Returns the open FILE, after opening it if necessary.

        Raises:
            OSError: the file can't be written.
        """
        if self._file is None or not self._file.is_usable:
            self._close_file()
            self._file = LineFile(self._path, self._mode)
        return self._file

    def append(self, lines: Sequence[bytes]) -> int:
        """Write as many lines as fit into one file, after rotating FILE if the first line does not fit.

        Returns:
            The number of written lines, counted from the first of ``lines``; at least 1.

        Raises:
            OSError: no line was written.
        """
        file = self.open()
        if not file.has_room(lines[0], self._max_bytes):
            self._rotate()
            file = self.open()
        return file.append(lines, self._max_bytes)

    def close(self) -> None:
        """Close the file."""
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rotate(self) -> None:
        """Delete the oldest files, and rename the others."""
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


def older_files(path: Path) -> list[tuple[int, Path]]:
    """Returns the numbers and paths of the rotated files of ``path``, newest (1) first.

    Raises:
        OSError: the folder can't be read.
    """
    found = []
    for each in path.parent.iterdir():
        stem, _, number = each.name.rpartition(".")
        if stem == path.name and number.isdecimal() and not number.startswith("0"):
            found.append((int(number), each))
    return sorted(found)


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"

"""Room on a disk that is kept for when the disk is full: without any, nothing could be deleted either."""

import os
from pathlib import Path
from typing import Final

RESERVE_BYTES: Final = 16 * 2**20
"""As much as the embedded store's log takes while some ten thousand blocks are deleted."""
_BESIDE_BYTES: Final = 2**20
"""That must be free beside the reserve before anything new is stored."""


class Reserve:
    """A file that only takes room. Its methods block for as long as the disk does.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_there(self) -> bool:
        """Whether the room is taken; a process that ends in the midst may leave a smaller file."""
        try:
            return self._path.stat().st_size >= RESERVE_BYTES
        except FileNotFoundError:
            return False

    def give_up(self) -> None:
        """Give the room back to the disk."""
        self._path.unlink(missing_ok=True)

    def restore(self, *, is_refused: bool) -> bool:
        """Take the room again; returns whether the disk has that much, and some beside it.

        Args:
            is_refused: whether the disk has refused a write, whatever it says that it has: there may be quotas.
        """
        if not self.is_there and not _allocate(self._path, RESERVE_BYTES):
            return False
        if not is_refused:
            found = os.statvfs(self._path.parent)
            return found.f_bavail * found.f_frsize >= _BESIDE_BYTES
        beside = self._path.with_name(f"{self._path.name}-beside")
        has_more = _allocate(beside, _BESIDE_BYTES)
        beside.unlink(missing_ok=True)
        return has_more


def _allocate(path: Path, size: int) -> bool:
    """Make a file of this size, for which the disk has taken the room; returns whether it could be done."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, size)
        finally:
            os.close(file)
    except OSError:
        path.unlink(missing_ok=True)
        return False
    return True

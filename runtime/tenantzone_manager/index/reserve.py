"""A reserve of disk space for deletions, because even a deletion must be written to the log of the store."""

import os
from pathlib import Path
from typing import Final

RESERVE_BYTES: Final = 16 * 2**20
"""Size of the reserve in bytes. This size suffices for the log entries of about ten thousand deletions."""
_PROBE_BYTES: Final = 2**20
"""Number of bytes that must be free in addition to the reserve before new blocks are stored."""


class Reserve:
    """A file that only occupies space. The methods block on disk I/O.

    Args:
        path: path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_there(self) -> bool:
        """Whether the space is occupied. A process that was killed during allocation may have left a smaller file."""
        try:
            return self._path.stat().st_size >= RESERVE_BYTES
        except FileNotFoundError:
            return False

    def give_up(self) -> None:
        """Release the space."""
        self._path.unlink(missing_ok=True)

    def restore(self, *, is_refused: bool) -> bool:
        """Occupy the space again; returns whether the disk has enough room for the reserve and for new blocks.

        Args:
            is_refused: whether a write was refused. If so, this method allocates a file to check for room, because the
                free space that a disk reports may ignore quotas.
        """
        if not self.is_there and not _allocate(self._path, RESERVE_BYTES):
            return False
        if not is_refused:
            found = os.statvfs(self._path.parent)
            return found.f_bavail * found.f_frsize >= _PROBE_BYTES
        probe = self._path.with_name(f"{self._path.name}-probe")
        has_more = _allocate(probe, _PROBE_BYTES)
        probe.unlink(missing_ok=True)
        return has_more


def _allocate(path: Path, size: int) -> bool:
    """Create a file with ``size`` allocated bytes; returns whether that succeeded."""
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

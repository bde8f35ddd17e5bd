"""The files of events. New events are appended to FILE, which is rotated to FILE.1, FILE.2 and so on."""

import errno
import fcntl
import os
from pathlib import Path

from tenantzone_contract.line_files import RotatedLines


class EventFiles(RotatedLines):
    """The files to which one manager appends events.

    A lock on FILE.lock keeps other processes from writing to the files until :meth:`close`.

    Args:
        path: path of FILE. If it exists, events are appended.
        max_bytes: maximum size of a file. A longer line is written to a file of its own.
        keep: maximum number of files, including FILE.

    Raises:
        OSError: the file can't be written, or another manager writes to it.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        super().__init__(path, max_bytes, keep)
        # Lock the files, because two processes that rotate the same files would lose each other's events.
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = f"{path}.lock"
        self._lock = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.open()
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, BlockingIOError):
                raise OSError(
                    errno.EBUSY, "another manager writes events to this file; give each manager its own file", lock
                ) from None
            raise

    def close(self) -> None:
        """Close the file, and release the lock."""
        super().close()
        os.close(self._lock)

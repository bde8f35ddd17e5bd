"""Reads and writes chunks where the manager says, on threads that may wait."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tenantzone_runtime.shared.places import FilePlace


class Storages(Protocol):
    """All that the shared tier does with storages. Every call may block, and raise :class:`OSError`."""

    def write(self, place: FilePlace, content: bytearray) -> None:
        """Write a chunk; another engine that opens it after this reads all of it."""

    def read(self, place: FilePlace, content: bytearray) -> bool:
        """Read a chunk; False: what is there has another length than ``content``."""


class FileStorages:
    """Folders that the engine has mounted where the manager has them.

    A file of a chunk's own is new, and is made by nobody else. A slot is in a large file that the manager has made; and
    a storage is one only where its ``owner`` file lies. Nothing is synced to the disk: what a loss of power leaves of a
    chunk does not open.
    """

    def write(self, place: FilePlace, content: bytearray) -> None:
        if place.offset >= 0:
            with _opened(place.path, os.O_WRONLY) as descriptor:
                _write(descriptor, content, place.offset)
            return
        try:
            # Closing tells what a network file system could not write.
            with _opened(place.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
                _write(descriptor, content, 0)
        except FileExistsError:
            raise
        except OSError:
            with suppress(OSError):
                place.path.unlink(missing_ok=True)
            raise

    def read(self, place: FilePlace, content: bytearray) -> bool:
        with _opened(place.path, os.O_RDONLY) as descriptor:
            if place.offset < 0 and os.fstat(descriptor).st_size != len(content):
                return False
            filled, begin = 0, max(0, place.offset)
            while filled < len(content):
                count = os.preadv(descriptor, [memoryview(content)[filled:]], begin + filled)
                if not count:
                    return False
                filled += count
            return True


def _write(descriptor: int, content: bytearray, offset: int) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(descriptor, left, offset)
        offset += written
        left = left[written:]


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    # Of a place below ROOT/objects or ROOT/files, four folders lie between.
    if not (path.parents[4] / "owner").exists():
        raise OSError(errno.ENODEV, "no storage is here; mount it where the manager has it", str(path.parents[4]))
    # Other engines and the manager may be other users: the mask says what they may do. All of it is sealed.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
    os.close(descriptor)

"""Reads and writes chunks in files, S3 objects and pool memory, on threads that may block."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tenantzone_runtime.shared.storage.mooncake import MooncakeStorages
from tenantzone_runtime.shared.storage.places import FilePlace, ObjectPlace, Place, PoolPlace
from tenantzone_runtime.shared.storage.s3 import S3Storages, open_s3


class Storages(Protocol):
    """The storage operations of the shared tier. Each method may block, and may raise :class:`OSError`."""

    def write(self, place: Place, content: bytearray) -> None:
        """Write a chunk. Engines that read it later get the whole chunk."""

    def read(self, place: Place, content: bytearray) -> bool:
        """Read a chunk. Returns False if its length differs from the length of ``content``."""


class FileStorages:
    """Folders that the engine has mounted at the same paths as the manager.

    A chunk is either a new file of its own, which no other process creates, or a slot in a large file that the manager
    has created. A folder is a storage only if its ``owner`` file exists. Files are not synced to the disk, because a
    chunk that was damaged by a power failure does not open.
    """

    def write(self, place: FilePlace, content: bytearray) -> None:
        if place.offset >= 0:
            with _opened(place.path, os.O_WRONLY) as descriptor:
                _write(descriptor, content, place.offset)
            return
        try:
            # On network file systems, write errors may only be reported when the file is closed.
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


class AllStorages:
    """Reads and writes places of all types. Clients of S3 and of pools are created on first use."""

    def __init__(self) -> None:
        self._files = FileStorages()
        self._pool = MooncakeStorages()
        self._lock = threading.Lock()
        self._s3: S3Storages | None = None

    def write(self, place: Place, content: bytearray) -> None:
        match place:
            case FilePlace():
                self._files.write(place, content)
            case ObjectPlace():
                self._opened_s3().write(place, content)
            case PoolPlace():
                self._pool.write(place, content)

    def read(self, place: Place, content: bytearray) -> bool:
        match place:
            case FilePlace():
                return self._files.read(place, content)
            case ObjectPlace():
                return self._opened_s3().read(place, content)
            case PoolPlace():
                return self._pool.read(place, content)

    def _opened_s3(self) -> S3Storages:
        with self._lock:
            if self._s3 is None:
                self._s3 = open_s3()
            return self._s3


def _write(descriptor: int, content: bytearray, offset: int) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(descriptor, left, offset)
        offset += written
        left = left[written:]


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    # In a storage, the root folder is always four folders above the folder of the file.
    if not (path.parents[4] / "owner").exists():
        raise OSError(errno.ENODEV, "no storage is mounted here; mount it at the manager's path", str(path.parents[4]))
    # Other engines and the manager may be different users, so the umask decides about their access. All data is sealed.
    # Use O_NONBLOCK, because opening a pipe that another user has put there would block.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
    os.close(descriptor)

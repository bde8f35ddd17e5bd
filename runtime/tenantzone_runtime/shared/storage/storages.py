"""Reads and writes chunks in files, S3 objects and memory pools. All methods may block."""

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
        """Write a chunk. When this method returns, any engine can read the whole chunk."""

    def read(self, place: Place, content: bytearray) -> bool:
        """Read a chunk into ``content``. Returns False if the stored length differs from that of ``content``."""


class FileStorages:
    """Storages in folders that are mounted at the same paths in the engine and the manager.

    A chunk is either in a separate file, which no other process creates, or in a slot of a large file that the manager
    has created. A folder is a storage only if it has the file ``owner``. Files are not synced to the disk, because a
    chunk that a power failure damaged can't be opened, and so is never used.
    """

    def write(self, place: FilePlace, content: bytearray) -> None:
        if place.offset >= 0:
            with _opened(place.path, os.O_WRONLY) as descriptor:
                _write(descriptor, content, place.offset)
            return
        try:
            # Closing is part of the write, because a network file system may report write errors only then.
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
    """Storages of all types. The clients of S3 and of memory pools are created at their first use."""

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
    # In each storage, the root folder is four levels above the folder of the file.
    if not (path.parents[4] / "owner").exists():
        raise OSError(errno.ENODEV, "no storage is mounted here; mount it at the manager's path", str(path.parents[4]))
    # Other engines and the manager may run as other users, so let the umask decide about access. All data is sealed.
    # Use O_NONBLOCK, because opening a pipe that another user has created at the path would block.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
    os.close(descriptor)

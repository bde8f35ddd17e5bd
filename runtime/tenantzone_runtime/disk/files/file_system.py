"""The file operations that the disk tier needs, as an interface, and their implementation for the operating system."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol


class FileFacts(NamedTuple):
    """Path, size and time of a file in a folder."""

    path: Path
    size: int
    """Size in bytes."""
    used_at: float
    """Unix time at which the file was written or last marked as used."""


class FileSystem(Protocol):
    """All file operations that the disk tier uses. Each method may block, and may raise :class:`OSError`."""

    def lock(self, path: Path) -> None:
        """Lock a file for this process. The lock lasts until the process ends or locks another file.

        Raises:
            BlockingIOError: another process holds the lock.
        """

    def has_locked(self, path: Path) -> bool:
        """Returns whether the path still refers to the file that this process locked last.

        Returns False if the file was removed or replaced, or if another disk was mounted over the path.

        Raises:
            OSError: the disk does not respond.
        """

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents. Does nothing if the folder exists."""

    def folders(self, path: Path) -> list[Path]:
        """Returns the subfolders of a folder; empty if the folder does not exist."""

    def files(self, path: Path) -> list[FileFacts]:
        """Returns the files in a folder, without subfolders; empty if the folder does not exist."""

    def write(self, path: Path, content: bytearray) -> None:
        """Write a new file durably, so that it survives a power failure."""

    def read(self, path: Path, content: bytearray) -> bool:
        """Read a file into ``content``. Returns False if the file's size differs from the size of ``content``."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file atomically."""

    def mark_used(self, path: Path) -> None:
        """Set a file's time of last use to now."""

    def remove(self, path: Path) -> None:
        """Remove a file. Does nothing if the file does not exist."""

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder, so that it and its removed files stay removed after a power failure.

        Does nothing if the folder does not exist.
        """


class LocalFileSystem:
    """The operating system's file system. Symbolic links to files are not followed."""

    def __init__(self) -> None:
        self._locked: int | None = None
        """Descriptor of the locked file."""
        self._mutex = threading.Lock()
        """Held while a thread uses the descriptor, so that no other thread closes the descriptor."""

    def lock(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        self._replace(descriptor)

    def has_locked(self, path: Path) -> bool:
        try:
            found = path.stat(follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        with self._mutex:
            return self._locked is not None and os.path.samestat(found, os.fstat(self._locked))

    def unlock(self) -> None:
        self._replace(None)

    def _replace(self, descriptor: int | None) -> None:
        with self._mutex:
            former, self._locked = self._locked, descriptor
        if former is not None:
            os.close(former)

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def folders(self, path: Path) -> list[Path]:
        with suppress(FileNotFoundError), os.scandir(path) as entries:
            return [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
        return []

    def files(self, path: Path) -> list[FileFacts]:
        found = []
        with suppress(FileNotFoundError), os.scandir(path) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    facts = entry.stat(follow_symlinks=False)
                    found.append(FileFacts(Path(entry), facts.st_size, facts.st_mtime))
        return found

    def write(self, path: Path, content: bytearray) -> None:
        with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            left = memoryview(content)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)

    def read(self, path: Path, content: bytearray) -> bool:
        with _opened(path, os.O_RDONLY) as descriptor:
            if os.fstat(descriptor).st_size != len(content):
                return False
            # Ask the kernel to read ahead, because the whole file is needed.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            filled = 0
            while filled < len(content):
                count = os.readv(descriptor, [memoryview(content)[filled:]])
                if not count:
                    return False
                filled += count
            return True

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def mark_used(self, path: Path) -> None:
        os.utime(path, follow_symlinks=False)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            path.rmdir()
            with _opened(path.parent, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
                os.fsync(descriptor)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

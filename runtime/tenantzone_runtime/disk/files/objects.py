"""Chunks as files on a disk: writes them atomically, reads them back, and lists and removes them.

All methods may block on the disk, and raise :class:`OSError`. They know nothing of zones and quotas.
"""

import errno
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tenantzone_runtime.disk.files.file_system import FileSystem
from tenantzone_runtime.disk.files.layout import Layout, ObjectName, object_name
from tenantzone_runtime.disk.files.sealing import CorruptObjectError


@dataclass(frozen=True, slots=True)
class FoundObject:
    """A chunk's file that existed at the start."""

    name: ObjectName
    used_at: float
    """Unix time of the file's last use."""


@dataclass(slots=True)
class Found:
    """The contents of a folder at the start."""

    objects: dict[str, list[FoundObject]] = field(default_factory=lambda: defaultdict(list))
    """Chunk files, by the folder of their seal."""
    leftovers: int = 0
    """Number of files removed because they were incomplete, of the wrong size, or not chunks."""


class Objects:
    """The files of one tier.

    Args:
        root: a folder for this engine process alone.
        file_system: the file system of the folder.
        content_bytes: size of each chunk in bytes.
        sealed_bytes: size of each chunk's file in bytes.
    """

    def __init__(self, root: Path, file_system: FileSystem, content_bytes: int, sealed_bytes: int) -> None:
        self.layout = Layout(root)
        self.content_bytes = content_bytes
        self.sealed_bytes = sealed_bytes
        self._files = file_system
        self._of_thread = threading.local()

    def buffer(self) -> bytearray:
        """Returns the thread's own buffer for one file, because allocation would take more time than filling it."""
        buffer = getattr(self._of_thread, "buffer", None)
        if not isinstance(buffer, bytearray):
            buffer = self._of_thread.buffer = bytearray(self.sealed_bytes)
        return buffer

    def open(self) -> Found:
        """Lock the folder for this process, remove incomplete files of a killed engine, and list the chunks.

        Raises:
            OSError: the folder can't be used; EBUSY if another process uses it.
        """
        self._files.make_folder(self.layout.incoming)
        self._files.make_folder(self.layout.objects)
        if not self.is_in_place():
            try:
                self._files.lock(self.layout.lock)
            except BlockingIOError:
                words = "another engine is using this folder; give each engine a folder of its own"
                raise OSError(errno.EBUSY, words, str(self.layout.root)) from None
        found = Found()
        for facts in self._files.files(self.layout.incoming):
            self._files.remove(facts.path)
            found.leftovers += 1
        for folder in self._files.folders(self.layout.objects):
            # An empty folder counts as found, so that it is removed.
            objects = found.objects[folder.name]
            for part in self._files.folders(folder):
                for facts in self._files.files(part):
                    name = object_name(facts.path.name)
                    if name is None or facts.size != self.sealed_bytes:
                        self._files.remove(facts.path)
                        found.leftovers += 1
                    else:
                        objects.append(FoundObject(name, facts.used_at))
        return found

    def is_in_place(self) -> bool:
        """Returns whether the folder is still the one that this process has locked, and was not removed or replaced.

        Raises:
            OSError: the disk does not respond.
        """
        return self._files.has_locked(self.layout.lock)

    def write(self, folder: str, name: ObjectName, sealed: bytearray) -> None:
        """Write a chunk's file, first to a temporary file that is synced to the disk and then renamed."""
        temporary, path = self.layout.temporary(name), self.layout.object(folder, name)
        try:
            self._files.write(temporary, sealed)
            self._files.make_folder(path.parent)
            self._files.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                self._files.remove(temporary)
            raise

    def read(self, folder: str, name: ObjectName) -> bytearray:
        """Returns the contents of a chunk's file, in this thread's buffer.

        Raises:
            CorruptObjectError: the file has the wrong size.
            FileNotFoundError: the file does not exist.
        """
        sealed = self.buffer()
        if not self._files.read(self.layout.object(folder, name), sealed):
            raise CorruptObjectError("the file has the wrong size")
        return sealed

    def mark_used(self, folder: str, name: ObjectName) -> None:
        """Mark a chunk as used now, for the next engine start. Errors are ignored."""
        with suppress(OSError):
            self._files.mark_used(self.layout.object(folder, name))

    def remove(self, folder: str, name: ObjectName) -> None:
        """Remove a chunk's file, and its temporary file."""
        self._files.remove(self.layout.temporary(name))
        self._files.remove(self.layout.object(folder, name))

    def sweep(self, folder: str) -> int:
        """Remove a seal's folder with its contents. Returns the number of removed files."""
        path = self.layout.objects / folder
        removed = self._remove_files(path)
        for part in self._files.folders(path):
            removed += self._remove_files(part)
            self._files.remove_folder(part)
        self._files.remove_folder(path)
        return removed

    def _remove_files(self, path: Path) -> int:
        files = self._files.files(path)
        for facts in files:
            self._files.remove(facts.path)
        return len(files)

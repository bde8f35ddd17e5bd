"""Writes chunks as files, atomically, and reads, lists and removes these files.

All methods may block on the disk, and may raise :class:`OSError`. The module does not use zones or quotas.
"""

import errno
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tenantzone_runtime.disk.files.file_system import FileSystem
from tenantzone_runtime.disk.files.layout import Layout, ObjectName, object_name
from tenantzone_runtime.disk.files.sealing import Buffers, CorruptObjectError


@dataclass(frozen=True, slots=True)
class FoundObject:
    """A chunk's file that existed when the folder was opened."""

    name: ObjectName
    used_at: float
    """Unix time of the file's last use."""


@dataclass(slots=True)
class Found:
    """The contents of the tier's folder when it was opened."""

    objects: dict[str, list[FoundObject]] = field(default_factory=lambda: defaultdict(list))
    """Chunk files, by the name of their seal's folder."""
    leftovers: int = 0
    """Number of files that were removed because they were not complete chunks."""


class Objects:
    """Access to the files of one disk tier.

    Args:
        root: the tier's folder. No other engine process may use it.
        file_system: the file system of the folder.
        content_bytes: size of each chunk in bytes.
        sealed_bytes: size of each chunk's file in bytes.
    """

    def __init__(self, root: Path, file_system: FileSystem, content_bytes: int, sealed_bytes: int) -> None:
        self.layout = Layout(root)
        self.content_bytes = content_bytes
        self.sealed_bytes = sealed_bytes
        self._files = file_system
        self.buffers = Buffers(sealed_bytes)

    def open(self) -> Found:
        """Lock the folder for this process, remove files that are not complete chunks, and list the chunks.

        Raises:
            OSError: the folder can't be used. The errno is EBUSY if another process has locked the folder.
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
            # Include empty folders, so that the caller removes them.
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
        """Returns whether this process has locked the folder, and the folder was not removed or replaced since.

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
        """Read a chunk's file into this thread's buffer, and return the buffer.

        Raises:
            CorruptObjectError: the file has the wrong size.
            FileNotFoundError: the file does not exist.
        """
        sealed = self.buffers.of_this_thread()
        if not self._files.read(self.layout.object(folder, name), sealed):
            raise CorruptObjectError("the file has the wrong size")
        return sealed

    def mark_used(self, folder: str, name: ObjectName) -> None:
        """Set the time of the chunk's last use to now. The next engine start reads this time. Errors are ignored."""
        with suppress(OSError):
            self._files.mark_used(self.layout.object(folder, name))

    def remove(self, folder: str, name: ObjectName) -> None:
        """Remove a chunk's file, and the chunk's temporary file."""
        self._files.remove(self.layout.temporary(name))
        self._files.remove(self.layout.object(folder, name))

    def sweep(self, folder: str) -> int:
        """Remove a seal's folder and all files in it. Returns the number of removed files."""
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

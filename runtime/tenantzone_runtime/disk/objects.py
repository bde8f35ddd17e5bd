"""The chunks on a disk as files: written whole or not at all, read back as they were written, found and removed.

Each method blocks for as long as the disk does, and may raise :class:`OSError`; none knows zones or quotas.
"""

import errno
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tenantzone_runtime.disk.file_system import FileSystem
from tenantzone_runtime.disk.layout import Layout, ObjectName, object_name
from tenantzone_runtime.disk.sealing import CorruptObjectError


@dataclass(frozen=True, slots=True)
class FoundObject:
    """A chunk's file that was there at the start."""

    name: ObjectName
    used_at: float
    """Unix time."""


@dataclass(slots=True)
class Found:
    """What a folder had at the start."""

    objects: dict[str, list[FoundObject]] = field(default_factory=lambda: defaultdict(list))
    """By the folder of their seal."""
    leftovers: int = 0
    """Files that were removed: half written, of another size, or no chunk's."""


class Objects:
    """The files of one tier.

    Args:
        root: a folder for this engine process alone.
        file_system: where it is.
        content_bytes: of each chunk.
        sealed_bytes: of each chunk's file.
    """

    def __init__(self, root: Path, file_system: FileSystem, content_bytes: int, sealed_bytes: int) -> None:
        self.layout = Layout(root)
        self.content_bytes = content_bytes
        self.sealed_bytes = sealed_bytes
        self._files = file_system
        self._of_thread = threading.local()

    def buffer(self) -> bytearray:
        """Memory of the thread's own for one file: a new one for each would cost more than to fill it."""
        buffer = getattr(self._of_thread, "buffer", None)
        if not isinstance(buffer, bytearray):
            buffer = self._of_thread.buffer = bytearray(self.sealed_bytes)
        return buffer

    def open(self) -> Found:
        """Take the folder for this process, remove what an engine left that was killed, and list the chunks.

        Raises:
            OSError: the folder can't be used; EBUSY: another process uses it.
        """
        self._files.make_folder(self.layout.incoming)
        self._files.make_folder(self.layout.objects)
        if not self.is_in_place():
            try:
                self._files.lock(self.layout.lock)
            except BlockingIOError:
                words = "another engine uses it; give each a folder of its own"
                raise OSError(errno.EBUSY, words, str(self.layout.root)) from None
        found = Found()
        for facts in self._files.files(self.layout.incoming):
            self._files.remove(facts.path)
            found.leftovers += 1
        for folder in self._files.folders(self.layout.objects):
            # A folder counts as found though nothing is in it, so that somebody removes it.
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
        """Whether the folder is the one that this process has taken, and not removed or another.

        Raises:
            OSError: the disk does not answer.
        """
        return self._files.has_locked(self.layout.lock)

    def write(self, folder: str, name: ObjectName, sealed: bytearray) -> None:
        """Write a chunk's file: a temporary one, to the disk, and then its name."""
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
        """What is in a chunk's file, in this thread's buffer.

        Raises:
            CorruptObjectError: the file has another size.
            FileNotFoundError: it is not there.
        """
        sealed = self.buffer()
        if not self._files.read(self.layout.object(folder, name), sealed):
            raise CorruptObjectError("the file has another size")
        return sealed

    def mark_used(self, folder: str, name: ObjectName) -> None:
        """Note for the next start that a chunk was used now, if the disk lets us."""
        with suppress(OSError):
            self._files.mark_used(self.layout.object(folder, name))

    def remove(self, folder: str, name: ObjectName) -> None:
        """Remove a chunk's file, and what a write of it may have left."""
        self._files.remove(self.layout.temporary(name))
        self._files.remove(self.layout.object(folder, name))

    def sweep(self, folder: str) -> int:
        """Remove all that is under a seal's folder, and the folder; returns how many files there were."""
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

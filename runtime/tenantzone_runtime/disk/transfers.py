"""Transfers of chunks between memory and disk. The caller can revoke its memory from a late transfer at any time."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from tenantzone_runtime.disk.files.layout import ObjectName
from tenantzone_runtime.disk.files.objects import Objects
from tenantzone_runtime.disk.files.sealing import Seal
from tenantzone_runtime.zones.model.zone import Zone

_T = TypeVar("_T")


class UsesMemory(Protocol):
    """A transfer from or to the caller's memory."""

    @property
    def memory(self) -> "Memory": ...


_Transfer = TypeVar("_Transfer", bound=UsesMemory)


class AbandonedError(Exception):
    """The caller revoked a transfer's memory before the transfer used it."""


class Removal:
    """The removal of a slot's old file, which must precede the slot's next write. Any thread may make it.

    Args:
        objects: access to the tier's files.
        folder: name of the folder of the file's seal.
        name: name of the file.
        earlier: the previous removal for the same slot, which may still be pending; None if there is none.
    """

    def __init__(self, objects: Objects, folder: str, name: ObjectName, earlier: "Removal | None" = None) -> None:
        self._objects, self._folder, self._name = objects, folder, name
        self._earlier = earlier
        self._lock = threading.Lock()
        self._is_done = False

    def make(self) -> None:
        """Remove the file, unless this removal has already been made.

        Raises:
            OSError: the file may still exist.
        """
        with self._lock:
            if not self._is_done:
                if self._earlier is not None:
                    self._earlier.make()
                    self._earlier = None
                self._objects.remove(self._folder, self._name)
                self._is_done = True


class Memory:
    """The caller's memory for one chunk. The caller can revoke the memory at any moment."""

    def __init__(self, view: memoryview) -> None:
        self._view: memoryview | None = view
        self._lock = threading.Lock()

    @property
    def is_wanted(self) -> bool:
        """Whether the caller still waits for the transfer: its memory was neither used nor revoked."""
        return self._view is not None

    def use(self, work: Callable[[memoryview], _T]) -> _T:
        """Call a nonblocking function with the memory, and return the result.

        Only one call can succeed. If the function raises an error, a later call may try again.

        Raises:
            AbandonedError: the memory was revoked, or an earlier call succeeded.
        """
        with self._lock:
            if self._view is None:
                raise AbandonedError
            done = work(self._view)
            self._view = None
            return done

    def take_back(self) -> None:
        """Revoke the memory. After this call, no thread reads or writes the memory."""
        with self._lock:
            self._view = None


@dataclass(eq=False, slots=True)
class Transfer:
    """One chunk in transfer."""

    zone: Zone
    slot: int
    name: ObjectName
    seal: Seal
    memory: Memory

    def write(self, objects: Objects, removal: Removal | None) -> None:
        """Make the removal, if any, and then seal and write the chunk. Called on a thread of the tier."""
        if removal is not None:
            removal.make()
        name = self.name
        sealed = objects.buffers.of_this_thread()
        self.memory.use(lambda view: self.seal.seal(view, name.key, name.nonce, sealed))
        objects.write(self.seal.folder, name, sealed)

    def read(self, objects: Objects) -> None:
        """Read and open the chunk. Called on a thread of the tier. The memory never receives another chunk's data."""
        name = self.name
        sealed = objects.read(self.seal.folder, name)
        self.memory.use(lambda view: self.seal.open(sealed, name.key, name.nonce, view))
        objects.mark_used(self.seal.folder, name)


@dataclass(slots=True)
class Job(Generic[_Transfer]):
    """Chunks that the caller stores or loads together."""

    number: int
    is_load: bool
    began: float
    chunk_bytes: int
    until: float = inf
    """Time at which the job is given up."""
    hit: Sequence[bytes] = ()
    """Keys of the hit to which the stored chunks belong; empty if each chunk is useful on its own."""
    left: dict[bytes, _Transfer] = field(default_factory=dict)
    moved: list[bytes] = field(default_factory=list)
    failed: int = 0

    def ended(self, key: bytes, error: Exception | None) -> bool:
        """Record the outcome of a chunk. Returns whether the job was still waiting for this chunk."""
        if self.left.pop(key, None) is None:
            return False
        if error is None:
            self.moved.append(key)
        else:
            self.failed += 1
        return True

    def give_up(self) -> None:
        """Revoke the memory of all unfinished chunks, and count these chunks as failed."""
        self.failed += len(self.left)
        for transfer in self.left.values():
            transfer.memory.take_back()
        self.left.clear()


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The outcome of a job."""

    number: int
    is_whole: bool
    """Whether every chunk was moved."""
    moved: list[bytes]
    """The keys of the moved chunks."""
    seconds: float
    moved_bytes: int


def end_of(job: Job[Any], now: float) -> JobEnd:
    """Returns the outcome of a job that has no chunks in transfer any more."""
    return JobEnd(job.number, not job.failed, job.moved, now - job.began, len(job.moved) * job.chunk_bytes)

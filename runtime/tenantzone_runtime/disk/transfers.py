"""Chunks in transfer between memory and disk, and how the caller's memory is taken from late transfers."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from tenantzone_runtime.disk.files.layout import ObjectName
from tenantzone_runtime.disk.files.objects import Objects
from tenantzone_runtime.disk.files.sealing import CorruptObjectError, Seal
from tenantzone_runtime.zones.model.zone import Zone

_T = TypeVar("_T")


class UsesMemory(Protocol):
    """A transfer from or to the caller's memory."""

    @property
    def memory(self) -> "Memory": ...


_Transfer = TypeVar("_Transfer", bound=UsesMemory)


class AbandonedError(Exception):
    """A transfer's memory was revoked before it could be used."""


class Removal:
    """The removal of a slot's old file, made by the first thread that needs it, and always before the next write.

    Args:
        objects: the files.
        folder: folder of the file's seal.
        name: name of the file.
        earlier: an earlier removal of the same slot, which may not be done yet.
    """

    def __init__(self, objects: Objects, folder: str, name: ObjectName, earlier: "Removal | None" = None) -> None:
        self._objects, self._folder, self._name = objects, folder, name
        self._earlier = earlier
        self._lock = threading.Lock()
        self._is_done = False

    def make(self) -> None:
        """Remove the file, unless it was removed before.

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
    """The caller's memory of one chunk, which the caller can revoke at any moment."""

    def __init__(self, view: memoryview) -> None:
        self._view: memoryview | None = view
        self._lock = threading.Lock()

    @property
    def is_wanted(self) -> bool:
        """Whether a caller still waits for the memory: it was neither used nor revoked."""
        return self._view is not None

    def use(self, work: Callable[[memoryview], _T]) -> _T:
        """Call a nonblocking function with the memory. If it succeeds, the memory is returned to the caller.

        Raises:
            AbandonedError: the memory was revoked, or used before.
        """
        with self._lock:
            if self._view is None:
                raise AbandonedError
            done = work(self._view)
            self._view = None
            return done

    def take_back(self) -> None:
        """Revoke the memory: once this returns, no thread reads or writes it any more."""
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
        """Store the chunk, on a thread of the tier."""
        if removal is not None:
            removal.make()
        name = self.name
        sealed = objects.buffer()
        self.memory.use(lambda view: self.seal.seal(view, name.key, name.nonce, sealed))
        objects.write(self.seal.folder, name, sealed)

    def read(self, objects: Objects) -> None:
        """Load the chunk, on a thread of the tier. The memory never receives data that was not stored for it."""
        name = self.name
        sealed = objects.read(self.seal.folder, name)
        self.memory.use(lambda view: self.seal.open(sealed, name.key, name.nonce, view))
        objects.mark_used(self.seal.folder, name)


def error_of(work: Callable[[], object]) -> Exception | None:
    """Returns the error of a transfer for another thread, or None."""
    try:
        work()
    except (OSError, CorruptObjectError, AbandonedError) as error:
        return error
    return None


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
    """Keys of the hit to which the stored chunks belong, if they are only useful together."""
    left: dict[bytes, _Transfer] = field(default_factory=dict)
    moved: list[bytes] = field(default_factory=list)
    failed: int = 0

    def ended(self, key: bytes, error: Exception | None) -> bool:
        """Record the outcome of a chunk. Returns whether the job was still waiting for it."""
        if self.left.pop(key, None) is None:
            return False
        if error is None:
            self.moved.append(key)
        else:
            self.failed += 1
        return True

    def give_up(self) -> None:
        """Revoke the memory of all unfinished chunks."""
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
    """Returns the outcome of a job without chunks in transfer."""
    return JobEnd(job.number, not job.failed, job.moved, now - job.began, len(job.moved) * job.chunk_bytes)

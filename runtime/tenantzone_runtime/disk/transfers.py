"""Chunks on their way between memory and disk, and how the caller takes its memory back from a disk that is late."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from tenantzone_runtime.disk.layout import ObjectName
from tenantzone_runtime.disk.objects import Objects
from tenantzone_runtime.disk.sealing import CorruptObjectError, Seal
from tenantzone_runtime.zones.zone import Zone

_T = TypeVar("_T")


class UsesMemory(Protocol):
    """What is on its way from or to memory of the caller's."""

    @property
    def memory(self) -> "Memory": ...


_Transfer = TypeVar("_Transfer", bound=UsesMemory)


class AbandonedError(Exception):
    """A transfer whose memory was taken back before it could be used."""


class Removal:
    """The removal of the file that a slot held, which whoever comes first makes: it is made before the next write.

    Args:
        objects: the files.
        folder: of the file's seal.
        name: of the file.
        earlier: of the same slot, which may not have been made.
    """

    def __init__(self, objects: Objects, folder: str, name: ObjectName, earlier: "Removal | None" = None) -> None:
        self._objects, self._folder, self._name = objects, folder, name
        self._earlier = earlier
        self._lock = threading.Lock()
        self._is_done = False

    def make(self) -> None:
        """Remove the file, if nobody has.

        Raises:
            OSError: it may still be there.
        """
        with self._lock:
            if not self._is_done:
                if self._earlier is not None:
                    self._earlier.make()
                    self._earlier = None
                self._objects.remove(self._folder, self._name)
                self._is_done = True


class Memory:
    """The caller's memory of one chunk, which it can take back at any moment."""

    def __init__(self, view: memoryview) -> None:
        self._view: memoryview | None = view
        self._lock = threading.Lock()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it: it was neither used nor taken back."""
        return self._view is not None

    def use(self, work: Callable[[memoryview], _T]) -> _T:
        """Do something with the memory that waits for nothing, once; it is the caller's again if it could be done.

        Raises:
            AbandonedError: it was taken back, or used before.
        """
        with self._lock:
            if self._view is None:
                raise AbandonedError
            done = work(self._view)
            self._view = None
            return done

    def take_back(self) -> None:
        """Nobody reads or writes the memory when this returns, or ever again."""
        with self._lock:
            self._view = None


@dataclass(eq=False, slots=True)
class Transfer:
    """One chunk on its way."""

    zone: Zone
    slot: int
    name: ObjectName
    seal: Seal
    memory: Memory

    def write(self, objects: Objects, removal: Removal | None) -> None:
        """Store the chunk, on a thread of the tier's."""
        if removal is not None:
            removal.make()
        name = self.name
        sealed = objects.buffer()
        self.memory.use(lambda view: self.seal.seal(view, name.key, name.nonce, sealed))
        objects.write(self.seal.folder, name, sealed)

    def read(self, objects: Objects) -> None:
        """Load the chunk, on a thread of the tier's; the memory has nothing that was not stored for this chunk."""
        name = self.name
        sealed = objects.read(self.seal.folder, name)
        self.memory.use(lambda view: self.seal.open(sealed, name.key, name.nonce, view))
        objects.mark_used(self.seal.folder, name)


def error_of(work: Callable[[], object]) -> Exception | None:
    """What a transfer came to, for whoever is not on this thread."""
    try:
        work()
    except (OSError, CorruptObjectError, AbandonedError) as error:
        return error
    return None


@dataclass(slots=True)
class Job(Generic[_Transfer]):
    """Chunks that the caller gave together."""

    number: int
    is_load: bool
    began: float
    chunk_bytes: int
    until: float = inf
    """It is given up then."""
    hit: Sequence[bytes] = ()
    """The keys of all that is of use together with what is stored."""
    left: dict[bytes, _Transfer] = field(default_factory=dict)
    moved: list[bytes] = field(default_factory=list)
    failed: int = 0

    def ended(self, key: bytes, error: Exception | None) -> bool:
        """Note what became of a chunk; returns whether the job waited for it."""
        if self.left.pop(key, None) is None:
            return False
        if error is None:
            self.moved.append(key)
        else:
            self.failed += 1
        return True

    def give_up(self) -> None:
        """Take back the memory of all that is not done."""
        self.failed += len(self.left)
        for transfer in self.left.values():
            transfer.memory.take_back()
        self.left.clear()


@dataclass(frozen=True, slots=True)
class JobEnd:
    """What became of a job."""

    number: int
    is_whole: bool
    """Whether each chunk that was on its way has arrived."""
    moved: list[bytes]
    """The keys of those that have."""
    seconds: float
    moved_bytes: int


def end_of(job: Job[Any], now: float) -> JobEnd:
    """What became of a job that waits for nothing any more."""
    return JobEnd(job.number, not job.failed, job.moved, now - job.began, len(job.moved) * job.chunk_bytes)

"""One write on a thread: the manager says where, the chunks go there, and the manager learns which ones did."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from tenantzone_runtime.disk.sealing import Seal
from tenantzone_runtime.disk.transfers import AbandonedError, Memory
from tenantzone_runtime.shared.answers import Location, StartedWrite
from tenantzone_runtime.shared.client import ManagerClient, ManagerError
from tenantzone_runtime.shared.places import PART, PlaceError, place_of
from tenantzone_runtime.shared.sealing import Buffers, seal_object
from tenantzone_runtime.shared.spaces import Space
from tenantzone_runtime.shared.storages import Storages
from tenantzone_runtime.zones.hit_shape import HitShape
from tenantzone_runtime.zones.tier_counts import WriteRefusal

CLOSED_SECONDS: Final = 10.0
"""For which nothing is written for a zone that may not register its instance."""
_GOING_ON: Final = ("serving", "writing", "write")
"""What can be read, now or when its writer is done."""
_REFUSALS: Final[dict[str, WriteRefusal]] = {"no_room": "room", "no_prefix": "closed", "writing": "transfers"}


@dataclass(frozen=True, slots=True)
class Shape:
    """Of all chunks of an engine."""

    content_bytes: int
    tokens: int
    hits: HitShape | None = None
    """Of a model whose chunks are of use together only; None: each is with those before it."""


@dataclass(slots=True)
class StoredChunk:
    """One chunk on its way to a storage."""

    index: int
    """In its prompt."""
    key: bytes
    memory: Memory


@dataclass(slots=True)
class WriteResult:
    """What became of a write."""

    written: list[bytes] = field(default_factory=list)
    """Keys that can be read now."""
    there: list[bytes] = field(default_factory=list)
    """That could be before."""
    refused: dict[WriteRefusal, int] = field(default_factory=dict)
    failures: int = 0
    """Chunks that a storage or the manager failed at."""
    first_missing: int | None = None
    """Index of the first chunk of the prompt that is neither there nor this write's; None: there is none."""
    tried: dict[str, str] = field(default_factory=dict)
    """Storages to which something was to be written, each with why the last failed; empty: it did not."""

    def refuse(self, reason: WriteRefusal) -> None:
        """Count a chunk that is not stored."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


class Write:
    """A run of chunks of one prompt, one behind the other.

    Args:
        client: asks the manager.
        storages: where chunks go.
        space: whose they are.
        prompt: keys from the beginning of the prompt to the last of the chunks.
        chunks: in its order.
        shape: of them.
        buffers: each as long as an object.
        parents: of each key of the prompt, the index of the one that it follows, or -1; and all of the chunks are
            written or nothing. Nothing: each follows the one before it.
    """

    def __init__(
        self,
        client: ManagerClient,
        storages: Storages,
        space: Space,
        prompt: Sequence[bytes],
        chunks: Sequence[StoredChunk],
        shape: Shape,
        buffers: Buffers,
        parents: Sequence[int] = (),
    ) -> None:
        self.space, self.chunks = space, chunks
        self.losses = space.losses
        """Of the space, before any of this was written."""
        self.condemned: set[bytes] = set()
        """Keys of which nothing may be kept; added to from another thread."""
        self.storage, self.began = "", math.inf
        """That is being written to, and since when, on the monotonic clock; infinity: none is. Read from any thread."""
        self.is_counted = True
        """Whether its chunks count as being stored: not after they are late, whatever their storage still does."""
        self._client, self._storages = client, storages
        self._prompt = prompt
        self._parents = parents
        self._shape = shape
        self._buffers = buffers

    def run(
        self, may_write: Callable[[str], bool], call_seconds: float, write_seconds: float, result: WriteResult
    ) -> Iterator[str]:
        """Write what is missing.

        Args:
            may_write: whether a storage may be written to, or is left alone since it fails; asked once for each.
            call_seconds: that a call of the manager may take.
            write_seconds: after which the manager takes this writer for dead.
            result: gets what becomes of it.

        Yields:
            The name of each storage before it is written to; an empty one before the manager is asked.

        Raises:
            ManagerError: nothing was begun.
        """
        yield ""
        started = self._start(call_seconds, write_seconds)
        may_write = cache(may_write)
        result.first_missing = _first_missing(started)
        keys: list[bytes] = []
        failed: list[int] = []
        blocks = started.blocks[self.chunks[0].index :]
        is_whole = not self._parents or all(block.standing in _GOING_ON for block in blocks)
        storage = ""
        for chunk, block in zip(self.chunks, blocks, strict=False):
            location = block.location
            if block.standing == "serving":
                result.there.append(chunk.key)
            elif location is None:
                result.refuse(_REFUSALS.get(block.standing, "closed"))
            else:
                keys.append(chunk.key)
                # What follows a chunk that is missing could never be read, nor a part of what is read as a whole. And
                # what was given up says nothing of its storage, which is not tried with it.
                may_go = is_whole and not failed and chunk.memory.is_wanted and may_write(location.storage)
                if may_go and location.storage != storage:
                    storage = location.storage
                    yield storage
                if not may_go:
                    _leave_out(chunk, result)
                if not may_go or not self._write(chunk, location, result):
                    failed.append(len(keys) - 1)
        if started.write_id:
            yield ""
            self._finish(started.write_id, keys, failed, call_seconds, result)

    def _start(self, call_seconds: float, write_seconds: float) -> StartedWrite:
        first = self.chunks[0].index
        self._register(call_seconds)
        try:
            return self._start_once(first, call_seconds, write_seconds)
        except ManagerError as error:
            if error.code != "NOT_FOUND":
                raise
        # It was purged by another engine, or the manager has lost its index.
        self.space.is_registered = False
        self._register(call_seconds)
        return self._start_once(first, call_seconds, write_seconds)

    def _start_once(self, first: int, call_seconds: float, write_seconds: float) -> StartedWrite:
        return self._client.start_write_cache(
            self.space.instance, self._prompt, first, write_seconds, call_seconds, self._parents
        )

    def _register(self, call_seconds: float) -> None:
        if self.space.is_registered:
            return
        for number, group in enumerate(self.space.groups, start=1):
            instance = {
                "name": self.space.instance,
                "group": group,
                "block_size": self._shape.tokens,
                "specs": [{"name": PART, "size": self._buffers.size}],
            }
            try:
                self._client.register_instance(instance, call_seconds)
            except ManagerError as error:
                if error.is_failure:
                    raise
                if error.code != "NOT_FOUND" or number == len(self.space.groups):
                    self.space.close(CLOSED_SECONDS)
                    raise
            else:
                self.space.is_registered = True
                return

    def _write(self, chunk: StoredChunk, location: Location, result: WriteResult) -> bool:
        seal: Seal = self.space.seal
        sealed = self._buffers.of_this_thread()
        try:
            place = place_of(location, self.space.instance, chunk.key, self._buffers.size)
            chunk.memory.use(lambda view: seal_object(seal, view, chunk.key, location.id, sealed))
            self.storage, self.began = location.storage, time.monotonic()
            self._storages.write(place, sealed)
        except AbandonedError:
            return False
        except (OSError, PlaceError) as error:
            result.failures += 1
            result.tried[location.storage] = str(error) or type(error).__name__
            return False
        finally:
            self.began = math.inf
        result.tried[location.storage] = ""
        return True

    def _finish(self, write_id: str, keys: list[bytes], failed: list[int], seconds: float, result: WriteResult) -> None:
        gone = {*failed, *(index for index, key in enumerate(keys) if key in self.condemned)}
        for is_last in (False, True):
            try:
                told = self._client.finish_write_cache(self.space.instance, write_id, keys, sorted(gone), seconds)
            except ManagerError:
                if is_last:
                    # The manager takes this writer for dead after a while, and has all of it go.
                    result.failures += len(keys) - len(gone)
            else:
                result.written += [key for key, ending in zip(keys, told.endings, strict=False) if ending == "serving"]
                return


def _leave_out(chunk: StoredChunk, result: WriteResult) -> None:
    """Count a chunk that is not tried, unless it was given up: that is counted already."""
    if chunk.memory.is_wanted:
        result.refuse("closed")


def _first_missing(started: StartedWrite) -> int | None:
    return next((index for index, block in enumerate(started.blocks) if block.standing == "no_prefix"), None)

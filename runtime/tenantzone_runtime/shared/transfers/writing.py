"""One write on a thread: gets locations from the manager, writes the chunks, and reports the results to the manager."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from tenantzone_runtime.disk.files.sealing import Buffers, Seal
from tenantzone_runtime.disk.transfers import AbandonedError, Memory
from tenantzone_runtime.shared.manager.answers import Location, StartedWrite
from tenantzone_runtime.shared.manager.client import ManagerClient, ManagerError
from tenantzone_runtime.shared.sealing import seal_object
from tenantzone_runtime.shared.spaces import Space
from tenantzone_runtime.shared.storage.places import PART, PlaceError, place_of
from tenantzone_runtime.shared.storage.storages import Storages
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tenantzone_runtime.zones.tiers.tier_counts import WriteRefusal

CLOSED_SECONDS: Final = 10.0
"""Seconds for which a zone writes no chunks after the manager refused to register the zone's instance."""
_GOING_ON: Final = ("serving", "writing", "write")
"""States of blocks that can be read now, or once their writes have ended."""
_REFUSALS: Final[dict[str, WriteRefusal]] = {"no_room": "room", "no_prefix": "closed", "writing": "transfers"}


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of an engine's chunks, and the shape of hits."""

    content_bytes: int
    """Size of a chunk in memory, in bytes."""
    tokens: int
    """Number of tokens per chunk."""
    hits: HitShape | None = None
    """The shape of hits if chunks are only useful together; None if each chunk only needs the chunks before it."""


@dataclass(slots=True)
class StoredChunk:
    """One chunk that is being stored."""

    index: int
    """Index of the chunk in its prompt."""
    key: bytes
    memory: Memory


@dataclass(slots=True)
class WriteResult:
    """The outcome of a write."""

    written: list[bytes] = field(default_factory=list)
    """Keys of the chunks that were written and can be read."""
    there: list[bytes] = field(default_factory=list)
    """Keys of the chunks that were already stored."""
    refused: dict[WriteRefusal, int] = field(default_factory=dict)
    """Number of chunks that were not written, by reason."""
    failures: int = 0
    """Number of chunks for which a storage or the manager failed."""
    first_missing: int | None = None
    """Index of the first chunk of the prompt that is neither stored nor part of this write; None if there is none."""
    tried: dict[str, str] = field(default_factory=dict)
    """The last error message of each used storage, by name; an empty message if the last chunk was written."""

    def refuse(self, reason: WriteRefusal) -> None:
        """Count one chunk as not written, under this reason."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


class Write:
    """Writes a run of consecutive chunks of one prompt.

    Args:
        client: calls the manager.
        storages: writes the chunks.
        space: the space of the chunks.
        prompt: keys from the beginning of the prompt to the last chunk.
        chunks: the chunks in the order of the prompt.
        shape: the shape of the chunks.
        buffers: buffers of the size of an object.
        parents: for each key of the prompt, the index of the preceding key, or -1 for none. If given, either all chunks
            are written or none. If empty, each key follows the previous key in ``prompt``.
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
        """Value of ``space.losses`` before any chunk was written."""
        self.condemned: set[bytes] = set()
        """Keys of chunks that must be discarded. Other threads may add keys."""
        self.storage, self.began = "", math.inf
        """Name of the storage used last, and the monotonic time at which the current use began; infinity while no
        storage is in use. Other threads read both."""
        self.is_counted = True
        """Whether the chunks count as being stored. Late chunks do not count, even while a thread still writes them."""
        self._client, self._storages = client, storages
        self._prompt = prompt
        self._parents = parents
        self._shape = shape
        self._buffers = buffers

    def run(
        self, may_write: Callable[[str], bool], call_seconds: float, write_seconds: float, result: WriteResult
    ) -> Iterator[str]:
        """Write the chunks that are not stored yet.

        Args:
            may_write: returns whether a storage may be used. It is called once for each storage.
            call_seconds: timeout of a call to the manager in seconds.
            write_seconds: seconds after which the manager considers this writer dead.
            result: receives the outcome.

        Yields:
            The name of each storage before the first write to it; an empty name before the manager is called.

        Raises:
            ManagerError: the manager did not begin the write.
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
                # Do not write a chunk that follows a missing chunk or is part of an incomplete hit: no request could
                # read it.
                # Do not write an abandoned chunk either: as a probe, it would show nothing about the storage.
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
        # Register again, because another engine has purged the instance, or the manager has lost its index.
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
                finished = self._client.finish_write_cache(self.space.instance, write_id, keys, sorted(gone), seconds)
            except ManagerError:
                if is_last:
                    # The chunks are lost, because the manager will consider this writer dead, and remove its chunks.
                    result.failures += len(keys) - len(gone)
            else:
                result.written += [
                    key for key, ending in zip(keys, finished.endings, strict=False) if ending == "serving"
                ]
                return


def _leave_out(chunk: StoredChunk, result: WriteResult) -> None:
    """Count a skipped chunk as refused. A chunk that was given up is not counted again."""
    if chunk.memory.is_wanted:
        result.refuse("closed")


def _first_missing(started: StartedWrite) -> int | None:
    return next((index for index, block in enumerate(started.blocks) if block.standing == "no_prefix"), None)

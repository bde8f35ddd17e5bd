"""Stores runs of consecutive chunks of prompts. A thread writes each run."""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tenantzone_runtime.disk.files.sealing import Buffers
from tenantzone_runtime.disk.jobs import Jobs
from tenantzone_runtime.disk.transfers import AbandonedError, Job, Memory
from tenantzone_runtime.shared.manager.asking import Asking
from tenantzone_runtime.shared.manager.client import MOST_KEYS, ManagerClient, ManagerError
from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.manager.threads import Threads
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.shared.storage.storage_breakers import StorageBreakers
from tenantzone_runtime.shared.storage.storages import Storages
from tenantzone_runtime.shared.transfers.writing import Shape, StoredChunk, Write, WriteResult
from tenantzone_runtime.zones.tiers.hit_shape import HitShape

logger = logging.getLogger(__name__)

Chunks = Sequence[tuple[int, bytes, memoryview]]
"""For each chunk: its index in the prompt, its key, and the caller's memory for it."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Chunks of a prompt that no storage has. Without them, later chunks of the prompt can't be stored."""

    query: Query
    first: int
    """Index of the first missing chunk."""
    end: int
    """Index of the last chunk that the request has tried to store, plus 1."""


class Storing:
    """Stores the chunks for which the manager grants room and whose storages work.

    Args:
        client: calls the manager.
        storages: writes the chunks.
        shape: the shape of the chunks.
        buffers: buffers of the size of an object.
        asking: has the circuit breaker of calls to the manager.
        threads: threads that wait for the manager and storages.
        jobs: the jobs in progress.
        settings: the limits of stores.
    """

    def __init__(
        self,
        client: ManagerClient,
        storages: Storages,
        shape: Shape,
        buffers: Buffers,
        asking: Asking,
        threads: Threads,
        jobs: Jobs,
        settings: SharedSettings,
    ) -> None:
        self.breakers = StorageBreakers("writes", settings.store_seconds)
        self.problem = ""
        """The reason why the manager refused the last write of a zone; empty if the last write was not refused."""
        self.gaps: list[Gap] = []
        """Missing beginnings of prompts, until the caller takes them."""
        self._client, self._storages = client, storages
        self._shape, self._buffers = shape, buffers
        self._asking, self._threads, self._jobs = asking, threads, jobs
        self._settings = settings
        self._writes: dict[Write, Job[StoredChunk]] = {}

    @property
    def is_at_rest(self) -> bool:
        """Whether no writes are in progress."""
        return not self._writes

    def begin(self, zone: SharedZone, job: Job[StoredChunk], query: Query, chunks: Chunks) -> None:
        """Begin to store the chunks that may be stored now.

        Args:
            zone: the zone of the chunks.
            job: receives the chunks in transfer.
            query: the request's query. Runs of the same request are written one after another.
            chunks: the chunks of the prompt.
        """
        run = self._run_of(zone, chunks, time.monotonic())
        if run:
            self._begin(zone, job, query, query.keys[: run[-1].index + 1], run)

    def begin_hit(
        self, zone: SharedZone, job: Job[StoredChunk], query: Query, hit: Sequence[bytes], chunks: Chunks
    ) -> None:
        """Begin to store either all of the given chunks of a hit, or none.

        Args:
            zone: the zone of the chunks.
            job: receives the chunks in transfer.
            query: the request's query.
            hit: keys of all chunks that the hit needs, in the order of `HitShape.keys`.
            chunks: the chunks to store, which are the last chunks of the hit.
        """
        run = self._run_of(zone, chunks, time.monotonic())
        if len(run) < len(chunks):
            zone.counts.refuse_writes("transfers", len(run))
            return
        shape = self._hit_shape
        self._begin(zone, job, query, hit, run, shape.parents(shape.tokens_in(len(hit))))

    def length_of(self, hit: Sequence[bytes]) -> int:
        """Returns the length of a hit, in chunks of the prompt. ``hit`` has all keys that the hit needs."""
        shape = self._hit_shape
        return shape.tokens_in(len(hit)) // shape.chunk_tokens

    @property
    def _hit_shape(self) -> HitShape:
        shape = self._shape.hits
        assert shape is not None, "hits require a known shape"
        return shape

    def _begin(
        self,
        zone: SharedZone,
        job: Job[StoredChunk],
        query: Query,
        prompt: Sequence[bytes],
        run: list[StoredChunk],
        parents: Sequence[int] = (),
    ) -> None:
        query.stored = True
        job.until = job.began + self._settings.store_seconds
        job.left.update((chunk.key, chunk) for chunk in run)
        write = Write(self._client, self._storages, zone.space, list(prompt), run, self._shape, self._buffers, parents)
        self._writes[write] = job
        zone.storing += len(run)
        zone.space.transfers += 1
        result = WriteResult()
        # The manager's timeout for this writer must be longer than the time for which the caller waits.
        steps = write.run(self._may_write, self._settings.call_seconds, 4 * self._settings.store_seconds, result)
        ended = partial(self._ended, zone, job, query, write, result)
        query.writes.append(partial(self._threads.write, zone.tenant, steps, ended))
        if len(query.writes) == 1:
            query.writes[0]()

    def giving_up(self, job: Job[StoredChunk], zone: SharedZone, is_late: bool) -> None:
        """Stop counting a job's chunks as being stored, and avoid the storages that delay the job.

        If the job is late, its unfinished chunks are also counted as late.
        """
        if is_late:
            zone.counts.late += len(job.left)
        for write in [each for each, its_job in self._writes.items() if its_job is job]:
            self._release(zone, write)
            self.breakers.gave_up(write, is_late=is_late)

    def condemn(self, zone: SharedZone, keys: Iterable[bytes]) -> None:
        """Make writes in progress discard the zone's chunks with these keys."""
        for write in self._writes:
            if write.space is zone.space:
                write.condemned.update(keys)

    def _run_of(self, zone: SharedZone, chunks: Chunks, now: float) -> list[StoredChunk]:
        """Returns the chunks that may be stored now, and counts the others as refused.

        The returned chunks are consecutive in the prompt, and within the limits of a call and of the zone.
        """
        if now < zone.space.closed_until or self._asking.breaker.is_open:
            zone.counts.refuse_writes("closed", len(chunks))
            return []
        ordered = sorted(chunks, key=lambda chunk: chunk[0])
        first = ordered[0][0]
        following = [chunk for number, chunk in enumerate(ordered) if chunk[0] == first + number < MOST_KEYS]
        granted = max(0, min(len(following), self._settings.chunks_at_once - zone.storing))
        zone.counts.refuse_writes("transfers", len(following) - granted)
        zone.counts.refuse_writes("closed", len(chunks) - len(following))
        return [StoredChunk(index, key, Memory(view)) for index, key, view in following[:granted]]

    def _ended(
        self,
        zone: SharedZone,
        job: Job[StoredChunk],
        query: Query,
        write: Write,
        result: WriteResult,
        error: Exception | None,
    ) -> None:
        query.writes.popleft()
        if query.writes:
            query.writes[0]()
        del self._writes[write]
        self.breakers.ended(write)
        self._release(zone, write)
        write.space.transfers -= 1
        self._asking.heard(error)
        if error is not None:
            self._not_begun(zone, error, len(write.chunks))
        else:
            self._count(zone, result)
            if result.first_missing is not None and not query.has_caught_up and self._shape.hits is None:
                query.has_caught_up = True
                self.gaps.append(Gap(query, result.first_missing, write.chunks[-1].index + 1))
        done = {*result.written, *result.there} if error is None else set[bytes]()
        if self._shape.hits is not None and done.issuperset(chunk.key for chunk in write.chunks):
            write.space.note_stored(write.chunks[-1].key, write.losses)
        for chunk in write.chunks:
            self._jobs.chunk_ended(job, chunk.key, None if chunk.key in done else AbandonedError())

    def _may_write(self, storage: str) -> bool:
        """Returns whether the caller may write to a storage now: it works, or may be probed and a thread is idle.

        If the storage is probed, the caller's write is the probe. Thread-safe.
        """
        if self.breakers.of(storage).is_open and not self._threads.may_write_at_once(storage):
            return False
        return self.breakers.allows(storage)

    @staticmethod
    def _release(zone: SharedZone, write: Write) -> None:
        """Stop counting a write's chunks as being stored."""
        zone.storing -= len(write.chunks) * write.is_counted
        write.is_counted = False

    def _count(self, zone: SharedZone, result: WriteResult) -> None:
        self.problem = ""
        counts = zone.counts
        counts.note_written(len(result.written))
        counts.write_failures += result.failures
        for reason, chunks in result.refused.items():
            counts.refuse_writes(reason, chunks)
        for storage, error in result.tried.items():
            self.breakers.note(storage, error)

    def _not_begun(self, zone: SharedZone, error: Exception, chunks: int) -> None:
        if not isinstance(error, ManagerError) or error.is_failure:
            zone.counts.write_failures += chunks
            return
        zone.counts.refuse_writes("closed", chunks)
        problem = f"the manager refuses chunks of zone {zone.tenant}: {error}"
        if problem != self.problem:
            logger.warning("The shared tier: %s", problem)
        self.problem = problem

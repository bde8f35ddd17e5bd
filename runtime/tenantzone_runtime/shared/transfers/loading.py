"""Loads chunks, each from the first of its storages that returns the chunk intact."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tenantzone_runtime.disk.files.sealing import Buffers, CorruptObjectError
from tenantzone_runtime.disk.jobs import Jobs
from tenantzone_runtime.disk.transfers import AbandonedError, Job, Memory
from tenantzone_runtime.shared.manager.answers import Location
from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.manager.threads import Threads
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.spaces import SharedZone, Space
from tenantzone_runtime.shared.storage.storage_breakers import StorageBreakers
from tenantzone_runtime.shared.storage.storages import Storages
from tenantzone_runtime.shared.transfers.reading import LoadedChunk


class Loading:
    """Loads chunks that a request's query has found.

    Args:
        storages: reads the chunks.
        buffers: buffers of the size of an object.
        threads: threads that wait for storages.
        jobs: the jobs in progress.
        remove: reports corrupt or missing chunks of a space to the manager.
        settings: the limits of loads.
    """

    def __init__(
        self,
        storages: Storages,
        buffers: Buffers,
        threads: Threads,
        jobs: Jobs,
        remove: Callable[[Space, Sequence[bytes]], None],
        settings: SharedSettings,
    ) -> None:
        self.breakers = StorageBreakers("reads", settings.load_seconds)
        self._storages, self._buffers = storages, buffers
        self._threads, self._jobs = threads, jobs
        self._remove = remove
        self._at_once, self._seconds = settings.chunks_at_once, settings.load_seconds

    def may_load(self, zone: SharedZone, locations: Iterable[Location], promised: int, now: float) -> bool:
        """Returns whether a chunk may be loaded now, if ``promised`` chunks of the zone will be loaded as well."""
        if promised >= self._at_once - zone.loading:
            return False
        return self._is_readable(locations, now)

    def may_load_all(self, zone: SharedZone, chunks: Sequence[Sequence[Location]], promised: int, now: float) -> bool:
        """Returns whether all the chunks may be loaded now. Before it loads them, a caller must call `try_with`."""
        if promised + len(chunks) > self._at_once - zone.loading:
            return False
        return all(self._is_readable(locations, now) for locations in chunks)

    def try_with(self, query: Query, keys: Iterable[bytes], now: float) -> None:
        """Probe failing storages with the load of the chunks with these keys. Other loads avoid these storages."""
        query.tried = set()
        for key in keys:
            names = [each.storage for each in query.found.get(key, [])]
            if not any(name in query.tried or not self.breakers.of(name).is_open for name in names):
                query.tried.update(next(([name] for name in names if self._may_try(name, now)), []))

    def begin(self, zone: SharedZone, job: Job[LoadedChunk], query: Query, key: bytes, view: memoryview) -> None:
        """Begin to load a chunk. A chunk that is no longer available counts as failed."""
        found = query.found.get(key, [])
        # Do not use failing storages that this load does not probe, not even if healthy storages have lost the chunk.
        usable = [each for each in found if each.storage in query.tried or not self.breakers.of(each.storage).is_open]
        if not usable or zone.loading >= self._at_once:
            job.failed += 1
            return
        best = sorted(usable, key=lambda each: self.breakers.of(each.storage).is_open)
        job.until = job.began + self._seconds
        chunk = job.left[key] = LoadedChunk(zone, query, zone.space, key, best, query.until, Memory(view))
        zone.loading += 1
        zone.counts.hits += 1
        heard: dict[str, str] = {}
        steps = chunk.read(self._storages, self._buffers, heard)
        self._threads.read(zone.tenant, steps, partial(self._ended, job, chunk, heard))

    def giving_up(self, job: Job[LoadedChunk], is_late: bool) -> None:
        """Stop counting the job's chunks as being loaded. If the job is late, count its chunks as late, too.

        Requests do not wait for late chunks again, and storages that delayed chunks are avoided.
        """
        for chunk in job.left.values():
            # A load that hangs must not reduce the number of chunks that the zone may load.
            self._release(chunk)
            if is_late:
                chunk.zone.counts.late += 1
                chunk.query.give_up()
            self.breakers.gave_up(chunk, is_late=is_late)

    def _is_readable(self, locations: Iterable[Location], now: float) -> bool:
        return any(self._may_begin(each.storage, now) for each in locations)

    def _may_begin(self, storage: str, now: float) -> bool:
        """Returns whether a storage may be read now: it works, or it may be probed and a thread is idle."""
        breaker = self.breakers.of(storage)
        return breaker.is_due(now) and (not breaker.is_open or self._threads.may_read_at_once(storage))

    def _may_try(self, storage: str, now: float) -> bool:
        return self._may_begin(storage, now) and self.breakers.of(storage).allows(now)

    @staticmethod
    def _release(chunk: LoadedChunk) -> None:
        """Stop counting a chunk as being loaded."""
        chunk.zone.loading -= chunk.is_counted
        chunk.is_counted = False

    def _ended(self, job: Job[LoadedChunk], chunk: LoadedChunk, heard: dict[str, str], error: Exception | None) -> None:
        self._release(chunk)
        self.breakers.ended(chunk)
        counts = chunk.zone.counts
        for storage, why in heard.items():
            self.breakers.note(storage, why)
        if error is None:
            counts.read += 1
        elif isinstance(error, CorruptObjectError):
            counts.note_corrupt()
        elif isinstance(error, FileNotFoundError):
            counts.vanished += 1
        elif not isinstance(error, AbandonedError):
            counts.read_failures += 1
        if error is not None:
            chunk.query.give_up()
        if isinstance(error, CorruptObjectError | FileNotFoundError) and time.monotonic() < chunk.until:
            # Report the lost chunk to the manager, so that the next request computes and stores it again.
            self._remove(chunk.space, [chunk.key])
        self._jobs.chunk_ended(job, chunk.key, error)

"""What this engine loads: each chunk by itself, from the first storage that gives it back as it was written."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tenantzone_runtime.disk.sealing import CorruptObjectError
from tenantzone_runtime.disk.transfers import AbandonedError, Job, Memory
from tenantzone_runtime.shared.answers import Location
from tenantzone_runtime.shared.jobs import Jobs
from tenantzone_runtime.shared.queries import Query
from tenantzone_runtime.shared.reading import LoadedChunk
from tenantzone_runtime.shared.sealing import Buffers
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.spaces import SharedZone, Space
from tenantzone_runtime.shared.storage_breakers import StorageBreakers
from tenantzone_runtime.shared.storages import Storages
from tenantzone_runtime.shared.threads import Threads


class Loading:
    """Loads chunks of which a request was told.

    Args:
        storages: where they are.
        buffers: each as long as an object.
        threads: that wait.
        jobs: under way.
        remove: has the manager find chunks no more that are not what they should be.
        settings: how.
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
        self.breakers = StorageBreakers("reads")
        self._storages, self._buffers = storages, buffers
        self._threads, self._jobs = threads, jobs
        self._remove = remove
        self._at_once = settings.chunks_at_once
        self._patience = settings.load_seconds

    def may_load(self, zone: SharedZone, locations: Iterable[Location], promised: int, now: float) -> bool:
        """Whether a chunk may be loaded now, beside so many that the zone was told of already."""
        if promised >= self._at_once - zone.loading:
            return False
        return any(self.breakers.of(each.storage).allows(now) for each in locations)

    def may_load_all(self, zone: SharedZone, chunks: Sequence[Sequence[Location]], promised: int, now: float) -> bool:
        """Whether all of these chunks may be loaded now; whoever begins to asks for :meth:`try_with`, too."""
        if promised + len(chunks) > self._at_once - zone.loading:
            return False
        return all(any(self.breakers.of(each.storage).is_due(now) for each in locations) for locations in chunks)

    def try_with(self, chunks: Sequence[Sequence[Location]], now: float) -> None:
        """Try what fails with all of these chunks, as with one: no others are loaded from there for a while."""
        tried: set[str] = set()
        for locations in chunks:
            names = [each.storage for each in locations]
            if not any(name in tried or not self.breakers.of(name).is_open for name in names):
                tried.update(next(([name] for name in names if self.breakers.of(name).allows(now)), []))

    def begin(self, zone: SharedZone, job: Job[LoadedChunk], query: Query, key: bytes, view: memoryview) -> None:
        """Begin to load a chunk; one that the zone can't have any more counts as failed."""
        locations = query.found.get(key, [])
        if not locations or zone.loading >= self._at_once:
            job.failed += 1
            return
        best = sorted(locations, key=self._misgiving)
        chunk = job.left[key] = LoadedChunk(zone, query, zone.space, key, best, query.until, Memory(view))
        zone.loading += 1
        zone.counts.hits += 1
        failed: dict[str, str] = {}
        work = partial(chunk.read, self._storages, self._buffers, failed)
        self._threads.read(zone.tenant, work, partial(self._ended, job, chunk, failed))

    def late(self, job: Job[LoadedChunk]) -> None:
        """Have nobody wait again for what is late, and leave alone the storages that held it up."""
        now, slow = time.monotonic(), set()
        for chunk in job.left.values():
            chunk.query.give_up()
            # Whoever waited for a thread most of the time says nothing of its storage.
            if now - chunk.began >= self._patience / 2:
                slow.add(chunk.storage)
        for storage in slow:
            self.breakers.note(storage, f"a chunk was not read within {self._patience:g} s", at_once=True)

    def _misgiving(self, location: Location) -> tuple[bool, bool]:
        breaker = self.breakers.of(location.storage)
        return breaker.is_open, not breaker.is_on_trial

    def _ended(
        self, job: Job[LoadedChunk], chunk: LoadedChunk, failed: dict[str, str], error: Exception | None
    ) -> None:
        chunk.zone.loading -= 1
        counts = chunk.zone.counts
        for storage, why in failed.items():
            self.breakers.note(storage, why)
        if error is None:
            counts.read += 1
            self.breakers.note(chunk.storage, "")
        elif isinstance(error, CorruptObjectError):
            counts.corrupt += 1
        elif isinstance(error, FileNotFoundError):
            counts.vanished += 1
        elif not isinstance(error, AbandonedError):
            counts.read_failures += 1
        if error is not None:
            chunk.query.give_up()
        if isinstance(error, CorruptObjectError | FileNotFoundError) and time.monotonic() < chunk.until:
            # So that it is computed once, and written anew.
            self._remove(chunk.space, [chunk.key])
        self._jobs.ended(job, chunk.key, error)

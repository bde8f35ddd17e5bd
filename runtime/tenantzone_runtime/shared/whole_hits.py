"""Whole hits: finds, loads and stores chunks for models whose chunks are only useful together."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile

from tenantzone_runtime.disk.jobs import Jobs
from tenantzone_runtime.disk.transfers import Job
from tenantzone_runtime.shared.manager.asking import Asking
from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.shared.transfers.loading import Loading
from tenantzone_runtime.shared.transfers.storing import Chunks, Storing
from tenantzone_runtime.shared.transfers.writing import StoredChunk


class WholeHits:
    """Finds and stores whole hits in storages, for one engine.

    Args:
        zone_of: returns a tenant's zone; None if the zone may not use storages now.
        asking: queries the manager.
        loading: decides which chunks may be loaded.
        storing: stores chunks.
        jobs: the jobs in progress.
        content_bytes: size of a chunk in memory in bytes.
        settings: the settings with the time budget of queries.
    """

    def __init__(
        self,
        zone_of: Callable[[str], SharedZone | None],
        asking: Asking,
        loading: Loading,
        storing: Storing,
        jobs: Jobs,
        content_bytes: int,
        settings: SharedSettings,
    ) -> None:
        self._zone_of = zone_of
        self._asking, self._loading, self._storing, self._jobs = asking, loading, storing, jobs
        self._content_bytes = content_bytes
        self._budget = settings.query_seconds

    def longest(self, tenant: str, query: Query) -> int | None:
        """Returns the length, in chunks, of the longest beginning of a prompt for which storages have all chunks.

        Args:
            tenant: the tenant of the request.
            query: the request's query. The first call sends the query.

        Returns:
            The length; 0 if there is no hit; None if the manager has not answered yet.
        """
        zone, now = self._zone_of(tenant), time.monotonic()
        if zone is None:
            return 0
        if self._asking.must_wait(zone, query, now, self._budget):
            return None
        return query.hit if query.is_believed(zone.space, now) else 0

    def may_load(self, tenant: str, query: Query, keys: Sequence[bytes], promised: int = 0) -> bool:
        """Returns whether all the chunks may be loaded now.

        Args:
            tenant: the tenant of the request.
            query: the request's query.
            keys: the keys of the chunks.
            promised: number of the zone's chunks that were already found, but whose loads have not begun.
        """
        zone, now = self._zone_of(tenant), time.monotonic()
        if zone is None or not query.is_believed(zone.space, now):
            return False
        may = self._loading.may_load_all(zone, [query.found.get(key, []) for key in keys], promised, now)
        if may:
            query.unused = 0
        else:
            zone.counts.reads_refused += len(keys)
        return may

    def promise(self, query: Query, keys: Sequence[bytes]) -> None:
        """Record that these chunks will be loaded. Their load is the probe of failing storages."""
        self._loading.try_with(query, keys, time.monotonic())

    def first_lacking(self, tenant: str, query: Query, hit: Sequence[bytes]) -> int:
        """Returns the index of the first chunk of a hit that storages may lack, or the hit's length if there is none.

        Chunks whose lease has expired count as stored, because storages usually still have them. If the zone may not
        use storages, no chunks count as missing.
        """
        zone = self._zone_of(tenant)
        if zone is None:
            return len(hit)
        if query.asked is not None and query.lacks(zone.space, self._storing.length_of(hit)):
            zone.space.note_lacking(hit[-1], query.asked)
        if zone.was_stored(hit[-1]):
            return len(hit)
        if query.space is not zone.space:
            return 0
        return sum(1 for _ in takewhile(query.found.__contains__, hit))

    def store(self, number: int, tenant: str, query: Query, hit: Sequence[bytes], chunks: Chunks) -> None:
        """Begin to store either all missing chunks of a hit or none. `SharedTier.finished` reports the end of the job.

        Args:
            number: the number of the job.
            tenant: the tenant of the chunks.
            query: the query of the request, which has ended.
            hit: keys of all chunks that the hit needs, in the order of `HitShape.keys`.
            chunks: the chunks to store, which are the last chunks of the hit. Their memory must not change until the
                job has ended.
        """
        job: Job[StoredChunk] = Job(number, False, time.monotonic(), self._content_bytes)
        zone = self._zone_of(tenant)
        if zone is None or not chunks:
            self._jobs.begin(job)
            return
        self._storing.begin_hit(zone, job, query, hit, chunks)
        self._jobs.begin(job, partial(self._storing.giving_up, job, zone))

"""Chunks that are of use together only: what storages have of a prompt as a whole, and what they are given of it."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile

from tenantzone_runtime.disk.transfers import Job
from tenantzone_runtime.shared.asking import Asking
from tenantzone_runtime.shared.jobs import Jobs
from tenantzone_runtime.shared.loading import Loading
from tenantzone_runtime.shared.queries import Query
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.shared.storing import Chunks, Storing
from tenantzone_runtime.shared.writing import StoredChunk


class WholeHits:
    """The hits of one engine in storages.

    Args:
        zone_of: a tenant's zone; None: it keeps nothing in storages now.
        asking: asks the manager.
        loading: says what may be loaded.
        storing: stores.
        jobs: under way.
        content_bytes: of a chunk in memory.
        settings: how.
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
        """How many chunks long the beginning of a prompt is that storages have with all that goes with it.

        Args:
            tenant: whose request asks.
            query: the request's own; the first call asks the manager.

        Returns:
            None: it is not known yet.
        """
        zone, now = self._zone_of(tenant), time.monotonic()
        if zone is None:
            return 0
        if self._asking.must_wait(zone, query, now, self._budget):
            return None
        return query.hit if query.is_believed(zone.space, now) else 0

    def may_load(self, tenant: str, query: Query, keys: Sequence[bytes], promised: int = 0) -> bool:
        """Whether all of these chunks may be loaded now.

        Args:
            tenant: whose request asks.
            query: the request's own.
            keys: of the chunks.
            promised: chunks that the zone was told of, and has not begun to load.
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
        """Note that these chunks are going to be loaded: storages that fail are tried with them."""
        self._loading.try_with(query, keys, time.monotonic())

    def first_lacking(self, tenant: str, query: Query, hit: Sequence[bytes]) -> int:
        """The index of the first chunk of a hit of which storages were not said to have it; the hit's length: none.

        That may be longer ago than it can be read for: they have it, as a rule. Of a zone that keeps nothing here, they
        lack nothing.
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
        """Begin to store all that a hit lacks, or nothing; the tier tells of the job when it has ended.

        Args:
            number: of the job.
            tenant: whose chunks they are.
            query: of the request that has ended.
            hit: the keys of all that it needs, as `HitShape.keys` has them.
            chunks: the end of it; the memory stays as it is until the job has ended.
        """
        job: Job[StoredChunk] = Job(number, False, time.monotonic(), self._content_bytes)
        zone = self._zone_of(tenant)
        if zone is None or not chunks:
            self._jobs.begin(job, None)
            return
        self._storing.begin_hit(zone, job, query, hit, chunks)
        self._jobs.begin(job, zone, partial(self._storing.giving_up, job, zone))

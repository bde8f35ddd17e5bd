"""The shared tier: stores and loads zones' chunks in storages that many engines share.

This module makes all decisions on the caller's thread, using only data in memory. The tier's threads wait for the
manager and storages. Their results are processed when the caller calls a method. The manager enforces quotas and
floors, and evicts chunks.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from threading import Event
from typing import Final

from tenantzone_contract.cache.cache_names import instance_name, owner_of, owner_part, pool_group, zone_group
from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.files.sealing import Buffers, Seal
from tenantzone_runtime.disk.jobs import Jobs
from tenantzone_runtime.disk.transfers import Job, JobEnd
from tenantzone_runtime.shared.figures import SharedFigures
from tenantzone_runtime.shared.manager.asking import Asking, locate_prefix
from tenantzone_runtime.shared.manager.client import ManagerClient
from tenantzone_runtime.shared.manager.hits import locate_hit
from tenantzone_runtime.shared.manager.queries import Finding, Query
from tenantzone_runtime.shared.manager.removing import Removing
from tenantzone_runtime.shared.manager.threads import Threads
from tenantzone_runtime.shared.sealing import object_size
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.spaces import SharedZone, Space
from tenantzone_runtime.shared.storage.storages import Storages
from tenantzone_runtime.shared.transfers.loading import Loading
from tenantzone_runtime.shared.transfers.reading import LoadedChunk
from tenantzone_runtime.shared.transfers.storing import Chunks, Gap, Storing
from tenantzone_runtime.shared.transfers.writing import Shape, StoredChunk
from tenantzone_runtime.shared.whole_hits import WholeHits
from tenantzone_runtime.zones.model.parts import slices
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts, TierTotals

REMOVED_AT_ONCE: Final = 1_000
"""Maximum number of keys to remove in one call, because the manager does nothing else while it processes the call."""


class SharedTier:
    """One engine's access to the storages that the engines of its pool share.

    Args:
        client: calls the manager.
        storages: reads and writes chunks.
        shape: the shape of chunks.
        seals: returns a zone's seal, given the tenant and the id of the zone's last purge (empty for none).
        has_pool_key: returns whether the salt key is the pool's key. If it is not, no other engine could find this
            engine's chunks.
        settings: settings of queries and transfers.
    """

    def __init__(
        self,
        client: ManagerClient,
        storages: Storages,
        shape: Shape,
        seals: Callable[[str, str], Seal],
        has_pool_key: Callable[[], bool],
        settings: SharedSettings,
    ) -> None:
        self.shape = shape
        self.zones: dict[str, SharedZone] = {}
        """The zones of the current config, by tenant."""
        self._client = client
        self._seals = seals
        self._has_pool_key = has_pool_key
        self._settings = settings
        self._pool: PoolConfig | None = None
        self._buffers = buffers = Buffers(object_size(seals("", ""), shape.content_bytes))
        self._threads = threads = Threads(settings)
        self._jobs = jobs = Jobs()
        locate = locate_prefix(client) if shape.hits is None else locate_hit(client, shape.hits)
        self._asking = asking = Asking(locate, threads, self._tell_gone)
        self._storing = Storing(client, storages, shape, buffers, asking, threads, jobs, settings)
        self._loading = Loading(storages, buffers, threads, jobs, self._remove, settings)
        self.whole_hits = WholeHits(
            self._storing_zone, self._asking, self._loading, self._storing, jobs, shape.content_bytes, settings
        )
        self._removing = Removing(client, partial(threads.ask, ""), settings.call_seconds, asking.heard)
        self._gone: dict[Space, list[bytes]] = {}
        """Keys of missing or corrupt chunks that were not reported to the manager yet, by space."""
        self._totals = TierTotals()
        self._looked = -settings.held_seconds
        self._is_looking = False

    @property
    def chunk_bytes(self) -> int:
        """The size of a chunk in memory, in bytes."""
        return self.shape.content_bytes

    @property
    def problem(self) -> str:
        """A message that says why the tier can't store or load now; empty if it can. Thread-safe."""
        if not self._has_pool_key():
            return "the pool has no salt key, so no other engine could read the chunks that this engine stores"
        breaker = self._asking.breaker
        troubles = [breaker.error if breaker.is_open else "", self._storing.problem]
        return "; ".join(filter(None, [*troubles, *self._loading.breakers.problems, *self._storing.breakers.problems]))

    @property
    def is_at_rest(self) -> bool:
        """Whether the tier has nothing to do: no chunk is in transfer, and no removals are pending."""
        loads = any(zone.loading for zone in self.zones.values())
        return self._storing.is_at_rest and not loads and not self._removing.has_work

    # Requests

    def find(self, tenant: str, query: Query, key: bytes, promised: int = 0) -> Finding:
        """Returns whether a chunk can be loaded now. The first call for a request queries its whole prompt.

        Args:
            tenant: the tenant of the request.
            query: the request's query.
            key: the key of the chunk.
            promised: number of the zone's chunks that were already found, but whose loads have not begun.
        """
        zone, now = self._storing_zone(tenant), time.monotonic()
        if zone is None:
            return Finding.MISS
        if self._asking.must_wait(zone, query, now, self._settings.query_seconds):
            return Finding.WAIT
        locations = query.found.get(key) if query.is_believed(zone.space, now) else None
        if locations is None:
            zone.counts.misses += 1
            return Finding.MISS
        if not self._loading.may_load(zone, locations, promised, now):
            zone.counts.reads_refused += 1
            return Finding.MISS
        query.unused = 0
        return Finding.HIT

    def why_closed(self, tenant: str) -> str:
        """Returns the reason why a tenant's zone can't store chunks now; empty if it can. See also :attr:`problem`."""
        zone = self.zones.get(tenant)
        if zone is None or zone.no_store:
            return "the zone stores nothing in storages, because of its offload or retention setting"
        is_going = self._removing.is_going(zone.space.instance, tenant)
        return "the zone's earlier chunks in storages are still being removed; try again later" if is_going else ""

    def is_waiting(self, query: Query) -> bool:
        """Returns whether a request's query was sent, is not answered yet, and may still be answered in time."""
        return self._asking.is_pending(query, time.monotonic())

    def count(self, tenant: str, query: Query) -> int | None:
        """Returns the number of chunks at the beginning of a prompt that storages have; None if it is not known yet.

        This method is not for requests, so the query may take longer: ``call_seconds`` instead of ``query_seconds``. If
        the manager does not answer in time, the result is 0.

        Args:
            tenant: the tenant of the prompt.
            query: the prompt's query. The first call sends the query.
        """
        zone, now = self._storing_zone(tenant), time.monotonic()
        if zone is None:
            return 0
        if query.asked is None:
            self._asking.ask(zone, query, now, self._settings.call_seconds)
        if self._asking.is_pending(query, now):
            return None
        return sum(1 for _ in takewhile(query.found.__contains__, query.keys))

    def ended(self, tenant: str, query: Query) -> None:
        """Record that a request has ended. Send a query if nothing has marked its prompt as used in storages yet.

        Each query of the request marks the prompt. So does a store, unless the model's chunks are only useful together.
        """
        zone = self._storing_zone(tenant)
        has_stored = query.stored and self.shape.hits is None
        if zone is not None and zone.held_bytes and query.keys and query.asked is None and not has_stored:
            self._asking.ask(zone, query, time.monotonic(), self._settings.call_seconds)

    def store(self, number: int, tenant: str, query: Query, chunks: Chunks) -> None:
        """Begin to store the missing chunks for which the manager grants room. :meth:`finished` reports the job's end.

        Args:
            number: the number of the job.
            tenant: the tenant of the chunks.
            query: the query of the request that stores.
            chunks: the chunks. Their memory must not change until the job has ended.
        """
        job: Job[StoredChunk] = Job(number, False, time.monotonic(), self.shape.content_bytes)
        zone = self._storing_zone(tenant)
        if zone is None or not chunks:
            self._jobs.begin(job)
            return
        self._storing.begin(zone, job, query, chunks)
        self._jobs.begin(job, partial(self._storing.giving_up, job, zone))

    def load(self, number: int, tenant: str, query: Query, chunks: Chunks) -> None:
        """Begin to load chunks that the request's query has found. :meth:`finished` reports the end of the job.

        Args:
            number: the number of the job.
            tenant: the tenant of the chunks.
            query: the query of the request that loads.
            chunks: the chunks. At the job's end, a chunk's memory contains the whole chunk or zeros, or is unchanged.
        """
        job: Job[LoadedChunk] = Job(number, True, time.monotonic(), self.shape.content_bytes)
        zone = self._storing_zone(tenant)
        if zone is None or query.space is not zone.space:
            job.failed = len(chunks)
            self._jobs.begin(job)
            return
        if self.shape.hits is None:
            self._loading.try_with(query, [key for _, key, _ in chunks], job.began)
        for _, key, view in chunks:
            self._loading.begin(zone, job, query, key, view)
        self._jobs.begin(job, partial(self._loading.giving_up, job))

    @property
    def has_gaps(self) -> bool:
        """Whether :meth:`take_gaps` would return any gaps."""
        return bool(self._storing.gaps)

    def take_gaps(self) -> list[Gap]:
        """Returns the gaps found since the last call, at most one for each request. An outage can cause gaps.

        If the caller has the missing chunks in memory, it may store them together with the chunks after them.
        """
        gaps, self._storing.gaps = self._storing.gaps, []
        return gaps

    def end_at_once(self, number: int) -> None:
        """Record an empty job as ended, because the caller waits for the job's end although it may not store."""
        self._jobs.begin(Job[StoredChunk](number, False, time.monotonic(), self.shape.content_bytes))

    def lose(self, tenant: str, keys: Iterable[bytes]) -> None:
        """Remove the chunks with these keys, and discard stores of them, because their contents are wrong."""
        zone, lost = self.zones.get(tenant), list(keys)
        if zone is not None and lost:
            self._storing.condemn(zone, lost)
            self._remove(zone.space, lost)
            self._tell_gone()

    def finished(self) -> list[JobEnd]:
        """Process the threads' results. Returns the jobs that ended, or were given up, since the last call."""
        self._take_note()
        return self._jobs.take_ended()

    def give_up_jobs(self) -> None:
        """End all jobs immediately. After this call, no thread accesses the caller's memory."""
        self._jobs.give_up_all()

    def renew_in_parts(self) -> Iterator[None]:
        """Make all chunks that were sealed with a previous key unfindable. There is only one part."""
        for tenant, zone in self.zones.items():
            before, zone.space = zone.space, self._new_space(tenant, zone.purge)
            if before.instance != zone.space.instance:
                self._removing.add_one(before)
        yield

    # Configs and time

    def apply_in_parts(self, config: RuntimeConfig) -> Iterator[None]:
        """Apply a new config, with the zones and their settings. There is only one part.

        Afterwards, purged chunks, and chunks of zones that were removed or may not store, can't be found any more. They
        are removed from the storages later. Then :meth:`take_receipts` reports their removal.
        """
        self._pool = config.pool
        before = self.zones
        self.zones = {zone.tenant: self._zone(zone, before.get(zone.tenant)) for zone in config.zones}
        for tenant, gone in before.items():
            if tenant not in self.zones:
                self._removing.add_all(tenant, gone.space)
        self._removing.go_on()
        yield

    def upkeep_in_parts(self) -> Iterator[None]:
        """Retry removals, remove expired chunks and query the zones' usage. Call this several times a second."""
        self._take_note()
        now = time.monotonic()
        if self._pool is None or not self._has_pool_key() or not self._asking.breaker.allows(now):
            return
        if self._asking.breaker.is_open:
            # Probe the manager here, because requests send no queries while the manager fails.
            self._looked = -self._settings.held_seconds
        else:
            self._removing.go_on()
            for zone in self.zones.values():
                self._trim(zone, now)
        self._look(now)
        yield

    def take_receipts(self) -> list[Receipt]:
        """Returns a receipt for each purge and each removed zone whose chunks were all removed since the last call."""
        return self._removing.take_receipts()

    def stop(self) -> None:
        """Give up all jobs, and drop the queued work of the tier's threads."""
        self.give_up_jobs()
        self._threads.stop()

    def figures(self) -> SharedFigures:
        """Returns the tier's statistics for all zones together. For single zones, see :attr:`zones`."""
        held = sum(zone.held_bytes for zone in self.zones.values())
        return SharedFigures(self._buffers.size, held, self.problem, self._asking.counts, self._totals.copy())

    def _take_note(self) -> None:
        self._threads.take_note()
        self._tell_gone()
        self._jobs.give_up_late(time.monotonic())
        self._loading.breakers.watch()
        self._storing.breakers.watch()

    # Zones

    def _storing_zone(self, tenant: str) -> SharedZone | None:
        """Returns a tenant's zone; None if the zone may not use storages now."""
        zone = self.zones.get(tenant)
        if zone is None or zone.no_store or not self._has_pool_key():
            return None
        # After a purge or removal, the zone may only store again once all its earlier chunks are removed.
        return None if self._removing.is_going(zone.space.instance, tenant) else zone

    def _zone(self, config: ZoneConfig, before: SharedZone | None) -> SharedZone:
        no_store = config.retention.no_store or config.offload == "Never"
        ttl = config.retention.ttl_seconds
        if before is None:
            space = self._new_space(config.tenant, config.purge)
            zone = SharedZone(config.tenant, config.purge, space, no_store, ttl, TierCounts(totals=self._totals))
            if no_store:
                self._removing.add_all(config.tenant, None)
            elif config.purge:
                # Purge again, because a previous engine process may have ended during this purge.
                self._removing.add_before(config.tenant, config.purge, None, is_told=False)
            return zone
        if config.purge and config.purge != before.purge:
            old, before.space = before.space, self._new_space(config.tenant, config.purge)
            before.purge = config.purge
            self._removing.add_before(config.tenant, config.purge, old, is_told=True)
        if no_store and not before.no_store:
            before.space.note_lost()
            self._removing.add_all(config.tenant, before.space)
        before.no_store, before.ttl = no_store, ttl
        return before

    def _new_space(self, tenant: str, purge: str) -> Space:
        pool = self._pool
        assert pool is not None, "a config must be applied before spaces are created"
        seal = self._seals(tenant, purge)
        groups = zone_group(pool.namespace, pool.name, tenant), pool_group(pool.namespace, pool.name)
        return Space(tenant, seal, instance_name(tenant, seal.folder, purge), groups)

    def _trim(self, zone: SharedZone, now: float) -> None:
        """Remove the expired chunks of a zone, if the last removal is long enough ago."""
        if zone.ttl is None or not zone.held_bytes:
            return
        if now - zone.trimmed < min(max(zone.ttl / 4, 0.1), self._settings.longest_trim_seconds):
            return
        zone.trimmed = now
        instance, ttl = zone.space.instance, zone.ttl
        work = partial(self._client.trim_cache, instance, ttl, self._settings.call_seconds)
        self._threads.ask("", work, self._asking.heard)

    def _look(self, now: float) -> None:
        """Query the zones' usage from the manager, if the last query is long enough ago."""
        if self._is_looking or now - self._looked < self._settings.held_seconds:
            return
        self._is_looking, self._looked = True, now
        held = Counter[str]()

        def ended(error: Exception | None) -> None:
            self._is_looking = False
            self._asking.heard(error)
            for zone in self.zones.values() if error is None else ():
                zone.held_bytes = held[owner_part(zone.tenant)]

        def work() -> None:
            for use in self._client.list_instances(self._settings.call_seconds).instances:
                held[owner_of(use.instance.name)] += sum(use.bytes_by_type.values())

        self._threads.ask("", work, ended)

    def _remove(self, space: Space, keys: Sequence[bytes]) -> None:
        space.note_lost()
        self._gone.setdefault(space, []).extend(keys)

    def _tell_gone(self) -> None:
        """Report missing and corrupt chunks to the manager. A tenant's next query waits for these reports."""
        gone, self._gone = self._gone, {}
        for space, keys in gone.items():
            for part in slices(keys, REMOVED_AT_ONCE):
                work = partial(self._tell, space.instance, part, space.begin_removal())
                self._threads.ask(space.tenant, work, self._asking.heard)

    def _tell(self, instance: str, keys: Sequence[bytes], reported: Event) -> None:
        try:
            self._client.remove_cache(instance, keys, self._settings.call_seconds)
        finally:
            reported.set()

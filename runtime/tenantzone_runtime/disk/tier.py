"""The disk tier: stores and loads zones' chunks, and decides how many chunks each zone may write and read.

This module makes all decisions on the caller's thread, using only data in memory. The tier's threads wait for the disk,
and :meth:`DiskTier.finished` processes their results. So no caller ever waits for a slow, full, read-only or missing
disk. Such a disk only leads to fewer hits.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.disk.breaker import Breaker
from tenantzone_runtime.disk.catalog import Catalog
from tenantzone_runtime.disk.figures import DiskFigures, Receipt, ZoneFigures
from tenantzone_runtime.disk.files.layout import ObjectName
from tenantzone_runtime.disk.files.objects import Objects
from tenantzone_runtime.disk.files.sealing import CorruptObjectError, Seal, new_nonce
from tenantzone_runtime.disk.jobs import Jobs
from tenantzone_runtime.disk.relinking import befores, block_of
from tenantzone_runtime.disk.room import Room
from tenantzone_runtime.disk.spaces import Space
from tenantzone_runtime.disk.transfers import AbandonedError, Job, JobEnd, Memory, Removal, Transfer
from tenantzone_runtime.disk.workers import Ended, Results, Workers
from tenantzone_runtime.zones.model.parts import ALL, slices
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tenantzone_runtime.zones.tiers.tier import Tier

logger = logging.getLogger(__name__)

Chunks = Sequence[tuple[bytes, memoryview]]
"""For each chunk: its key, and the caller's memory for it."""

CHUNKS_AT_ONCE: Final = 50
"""Maximum number of chunks evicted outside of the engine's steps before the engine's lock is released."""


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """The number of threads for transfers, and the time limits of transfers."""

    readers: int = 8
    """Number of threads that read."""
    writers: int = 4
    """Number of threads that write and remove files."""
    seconds: float = 2.0
    """Time limit of a job, in seconds, if at most ``chunks`` chunks of the zone are in transfer; for more chunks, it
    grows in proportion. Then the tier gives the job up, and a request that waits for a load computes the blocks. The
    tier also gives a job up if no chunk was moved in the job's direction for ``seconds``."""
    chunks: int = 64


class DiskTier:
    """One engine's tier on one disk.

    Args:
        objects: access to the tier's files.
        tier: the zones' shares of the disk. The size of its chunks is the disk space of a file.
        seals: returns a zone's seal, given the tenant and the id of the zone's last purge (empty for none).
        settings: settings of transfers.
        shape: hit shape of a model whose chunks are only useful together; None if each chunk is useful on its own.
    """

    def __init__(
        self,
        objects: Objects,
        tier: Tier,
        seals: Callable[[str, str], Seal],
        settings: DiskSettings,
        shape: HitShape | None = None,
    ) -> None:
        self.tier = tier
        self.chunk_bytes = objects.content_bytes
        self.write_breaker = Breaker(service="The disk tier's writes")
        self.read_breaker = Breaker(service="The disk tier's reads")
        self._objects = objects
        self._settings = settings
        self._jobs = Jobs(settings.seconds)
        self._results = Results("disk", OSError, CorruptObjectError, AbandonedError)
        self._writers = Workers("tenantzone-disk-write", settings.writers)
        self._readers = Workers("tenantzone-disk-read", settings.readers)
        self._catalog = Catalog(objects, tier, seals, self._run_write, shape)
        self._room = Room(tier, self._catalog, self.write_breaker)
        self.removal_breaker = self._catalog.breaker

    @property
    def is_open(self) -> bool:
        """Whether chunks may be stored: the disk was listed, and files that belong to no zone were removed."""
        return self._catalog.is_open

    @property
    def problem(self) -> str:
        """A message that lists the disk operations that fail now, and their errors; empty if none fails."""
        ways = {"writes": self.write_breaker, "reads": self.read_breaker, "removals": self.removal_breaker}
        return "; ".join(f"{way} fail: {breaker.error}" for way, breaker in ways.items() if breaker.is_open)

    @property
    def is_at_rest(self) -> bool:
        """Whether the tier has nothing to do: no chunk is in transfer, and no removals of files are pending."""
        in_transfer = any(zone.in_use for zone in self.tier.ledger.zones.values())
        return self._catalog.is_at_rest and not in_transfer

    # Requests

    def find(self, zone: Zone, key: bytes, promised: int = 0) -> bool:
        """Returns whether a chunk of the zone is on the disk and may be loaded now.

        Args:
            zone: the zone of the request.
            key: the key of the chunk.
            promised: number of the zone's chunks that this method has already found, but whose loads have not begun.
        """
        counts = self.tier.counts_of(zone)
        entry = self._catalog.entry(zone, key)
        if entry is None or not self.tier.has_stored(zone, entry.slot):
            counts.misses += 1
            return False
        if promised >= self.tier.loadable(zone) or not self.is_readable:
            counts.reads_refused += 1
            return False
        return True

    @property
    def is_readable(self) -> bool:
        """Whether chunks may be loaded now. While the breaker of reads is open, only a probe may be loaded."""
        return self.read_breaker.is_due(time.monotonic())

    def holds(self, zone: Zone, key: bytes) -> bool:
        """Returns whether a chunk of the zone is completely stored."""
        entry = self._catalog.entry(zone, key)
        return entry is not None and self.tier.has_stored(zone, entry.slot)

    def may_load(self, zone: Zone, count: int, promised: int = 0) -> bool:
        """Returns whether ``count`` chunks of the zone, which are only useful together, may be loaded now.

        Before the caller loads them, it must call :meth:`try_reading`. For ``promised``, see :meth:`find`.
        """
        may = count + promised <= self.tier.loadable(zone) and self.is_readable
        if not may:
            self.tier.counts_of(zone).reads_refused += count
        return may

    def try_reading(self) -> None:
        """Record that the caller will load chunks. If the breaker of reads is open, this load is the probe."""
        self.read_breaker.allows(time.monotonic())

    def lacks(self, zone: Zone, hit: Iterable[bytes]) -> list[bytes]:
        """Returns those of a hit's keys for which the zone has no chunk, neither stored nor being stored."""
        return [key for key in hit if self._catalog.entry(zone, key) is None]

    def store_hit(self, number: int, zone: Zone, chunks: Chunks, hit: Sequence[bytes], prompt: Iterable[bytes]) -> None:
        """Begin to store either all missing chunks of a hit or none. :meth:`finished` reports the end of the job.

        Args:
            number: the number of the job.
            zone: the zone of the chunks.
            chunks: the missing chunks; their memory must not change until the job has ended.
            hit: the keys of all chunks that the hit needs, in the order of `HitShape.keys`.
            prompt: the keys of one KV cache group's chunks, from the beginning of the prompt.
        """
        now = time.monotonic()
        job: Job[Transfer] = Job(number, False, now, self.chunk_bytes, hit=hit)
        there = self._catalog.slots_of(zone, hit)
        is_admitted = self.tier.admission.admits_any(zone, hit[-1:], self.tier.ledger.now)
        if not is_admitted:
            self.tier.admission.count_not_admitted(zone, len(chunks))
        slots = self._room.for_all(zone, len(chunks), there, now) if is_admitted else []
        is_kept = len(slots) == len(chunks)
        before = befores(prompt)
        names = [ObjectName(key, new_nonce(), before[block_of(key)]) for key, _ in chunks]
        self._begin_writes(job, zone, slots, zip(names, (view for _, view in chunks), strict=True))
        chunk_ids = self._catalog.slots_of(zone, hit) if is_kept else []
        self._catalog.forget(self.tier.link(zone, [*there, *slots], [chunk_ids] if is_kept else []))
        self._jobs.begin(job, partial(self._giving_up, job))

    def store(self, number: int, zone: Zone, chunks: Chunks, protected: Iterable[bytes] = ()) -> None:
        """Begin to store the missing chunks that the zone may store. :meth:`finished` reports the end of the job.

        Args:
            number: the number of the job.
            zone: the zone of the chunks.
            chunks: the chunks in the order of the prompt; their memory must not change until the job has ended.
            protected: keys of chunks at the beginning of the same prompt. They are not evicted for the new chunks.
        """
        now = time.monotonic()
        job: Job[Transfer] = Job(number, False, now, self.chunk_bytes)
        new = [chunk for chunk in chunks if self._catalog.entry(zone, chunk[0]) is None]
        new = new[: self.tier.admission.admitted(zone, [key for key, _ in new], self.tier.ledger.now)]
        slots = self._room.for_some(zone, len(new), self._catalog.slots_of(zone, protected), now) if new else []
        self._begin_writes(job, zone, slots, ((ObjectName(key, new_nonce()), view) for key, view in new))
        self._jobs.begin(job, partial(self._giving_up, job))

    def _begin_writes(
        self, job: Job[Transfer], zone: Zone, slots: list[int], chunks: Iterable[tuple[ObjectName, memoryview]]
    ) -> None:
        self.tier.store(zone, slots)
        for slot, (name, view) in zip(slots, chunks, strict=False):
            space = self._catalog.space(zone)
            removal = self._catalog.add(space, slot, name)
            transfer = job.left[name.key] = Transfer(zone, slot, name, space.seal, Memory(view))
            ended = partial(self._stored, job, space, transfer, removal)
            space.transfers += 1
            self._run_write(zone.spec.tenant, partial(transfer.write, self._objects, removal), ended)
        job.until = self._until(job, self.tier.storing[zone])

    def _until(self, job: Job[Transfer], on_their_way: int) -> float:
        return job.began + self._settings.seconds * max(1, -(-on_their_way // self._settings.chunks))

    def load(self, number: int, zone: Zone, chunks: Chunks, *, is_tried: bool = False) -> None:
        """Begin to load chunks that :meth:`find` has found. Chunks that are no longer available count as failed.

        Args:
            number: the number of the job.
            zone: the zone of the chunks.
            chunks: the chunks. At the job's end, a chunk's memory contains the whole chunk or zeros, or is unchanged.
            is_tried: whether the caller has called :meth:`try_reading` for these chunks.
        """
        job: Job[Transfer] = Job(number, True, time.monotonic(), self.chunk_bytes)
        if not is_tried and not self.read_breaker.allows(job.began):
            job.failed, chunks = len(chunks), ()
        for key, view in chunks:
            entry = self._catalog.entry(zone, key)
            if entry is None or not self.tier.has_stored(zone, entry.slot) or not self.tier.loadable(zone):
                job.failed += 1
                continue
            space = self._catalog.space(zone)
            self.tier.load(zone, [entry.slot])
            transfer = job.left[key] = Transfer(zone, entry.slot, entry.name, space.seal, Memory(view))
            space.transfers += 1
            ended = partial(self._loaded, job, space, transfer)
            self._results.run(self._readers, zone.spec.tenant, partial(transfer.read, self._objects), ended)
        job.until = self._until(job, self.tier.loading[zone])
        self._jobs.begin(job, partial(self._giving_up, job))

    def end_at_once(self, number: int) -> None:
        """Record an empty job as ended, because the caller waits for the job's end although it may not store."""
        self._jobs.begin(Job(number, False, time.monotonic(), self.chunk_bytes))

    def use(self, zone: Zone, keys: Iterable[bytes]) -> None:
        """Record that chunks were used, in this order. Missing chunks are skipped."""
        self.tier.use(zone, self._catalog.slots_of(zone, keys))

    def lose(self, zone: Zone, keys: Iterable[bytes]) -> None:
        """Remove the zone's chunks with these keys, because their contents are wrong."""
        for slot in self._catalog.slots_of(zone, keys):
            self._catalog.forget(self.tier.lose(zone, slot))

    def renew(self) -> None:
        """Remove all chunks, because they are lost or were sealed with a previous key."""
        for _ in self.renew_in_parts(ALL):
            pass

    def renew_in_parts(self, at_once: int = CHUNKS_AT_ONCE) -> Iterator[None]:
        """Do the same as `renew`, but yield after each ``at_once`` chunks. The caller may change chunks in between."""
        for tenant in self._catalog.tenants:
            zone, space = self.tier.ledger.zones.get(tenant), self._catalog.reseal(tenant)
            for entries in slices(list(space.entries.items()), at_once):
                for key, entry in entries:
                    if zone is not None and space.entries.get(key) is entry:
                        self._catalog.forget(self.tier.lose(zone, entry.slot))
                yield

    def finished(self) -> list[JobEnd]:
        """Process the threads' results. Returns the jobs that ended, or were given up, since the last call."""
        self._take_note()
        return self._jobs.take_ended()

    def _take_note(self) -> None:
        self._results.take_note()
        self._jobs.give_up_late(time.monotonic())

    def give_up_jobs(self) -> None:
        """End all jobs immediately. After this call, no thread accesses the caller's memory."""
        self._jobs.give_up_all()

    # Configs and time

    def apply(self, config: RuntimeConfig) -> None:
        """Apply a new config, with the zones and their shares of the tier.

        When this method returns, purged chunks and chunks of removed zones can't be found any more. Their files are
        removed later. Then :meth:`take_receipts` reports their removal.
        """
        for _ in self.apply_in_parts(config, ALL):
            pass

    def apply_in_parts(self, config: RuntimeConfig, at_once: int = CHUNKS_AT_ONCE) -> Iterator[None]:
        """Do the same as `apply`, but yield after each ``at_once`` chunks. The caller may change chunks in between."""
        yield from self._catalog.renew_purged(config)
        for zone, given_up in self.tier.apply_in_parts(config, time.monotonic(), at_once):
            self._catalog.retire_if_gone(zone.spec.tenant)
            self._catalog.forget(given_up)
            yield
        yield from self._catalog.tidy()
        self._catalog.sweep()

    def upkeep(self) -> None:
        """Evict expired chunks, and retry failed disk operations. Call this several times a second."""
        for _ in self.upkeep_in_parts(ALL):
            pass

    def upkeep_in_parts(self, at_once: int = CHUNKS_AT_ONCE) -> Iterator[None]:
        """Do the same as `upkeep`, but yield after each ``at_once`` chunks."""
        # Process the threads' results here, too, because an engine without requests runs no steps.
        self._take_note()
        if self._catalog.is_lost:
            yield from self.renew_in_parts(at_once)
            self._catalog.begin_anew()
        for given_up in self.tier.upkeep_in_parts(time.monotonic(), at_once):
            self._catalog.forget(given_up)
            yield
        yield from self._catalog.tidy()
        self._catalog.go_on(time.monotonic())

    def take_receipts(self) -> list[Receipt]:
        """Returns a receipt for each purge and each removed zone whose files were all removed since the last call."""
        return self._catalog.take_receipts()

    def stop(self) -> None:
        """Give up all jobs, and drop the queued work of the tier's threads."""
        self.give_up_jobs()
        self._writers.stop()
        self._readers.stop()

    def figures(self) -> DiskFigures:
        """Returns the tier's current statistics for a report."""
        zones = {}
        for tenant, zone in self.tier.ledger.zones.items():
            sizes = (zone.held, zone.spec.quota.reserved, zone.spec.quota.limit)
            held, reserved, limit = (chunks * self.tier.chunk_bytes for chunks in sizes)
            evictions = {str(reason): chunks for reason, chunks in zone.counters.evicted.items()}
            zones[tenant] = ZoneFigures(held, reserved, limit, zone.in_use, evictions, self.tier.counts_of(zone))
        return DiskFigures(
            capacity_bytes=self.tier.chunk_count * self.tier.chunk_bytes,
            held_bytes=self.tier.ledger.held_blocks * self.tier.chunk_bytes,
            is_open=self.is_open,
            writes_fail=self.write_breaker.is_open,
            reads_fail=self.read_breaker.is_open,
            leftovers=self._catalog.leftovers,
            found=self._catalog.found,
            removals_failed=self._catalog.removals_failed,
            zones=zones,
        )

    # Results of the threads

    def _stored(
        self, job: Job[Transfer], space: Space, transfer: Transfer, removal: Removal | None, error: Exception | None
    ) -> None:
        space.transfers -= 1
        counts = self.tier.counts_of(transfer.zone)
        key = transfer.name.key
        if error is None:
            if removal is not None:
                self._catalog.slots.removed(transfer.slot, removal)
            self.write_breaker.succeeded()
        elif not isinstance(error, AbandonedError):
            counts.write_failures += 1
            self.write_breaker.note(error, "write a chunk")
        self._catalog.forget(self.tier.stored([transfer.slot], success=error is None))
        if self._jobs.chunk_ended(job, key, error):
            # Mark the chunks as used from last to first, so that the end of the prompt is evicted first.
            self.use(transfer.zone, reversed(job.hit))

    def _loaded(self, job: Job[Transfer], space: Space, transfer: Transfer, error: Exception | None) -> None:
        space.transfers -= 1
        counts = self.tier.counts_of(transfer.zone)
        lost = False
        if error is None:
            counts.read += 1
            self.read_breaker.succeeded()
        elif isinstance(error, CorruptObjectError):
            counts.note_corrupt()
            lost = True
        elif isinstance(error, FileNotFoundError):
            counts.vanished += 1
            lost = True
        elif not isinstance(error, AbandonedError):
            counts.read_failures += 1
            self.read_breaker.note(error, "read a chunk")
            lost = True
        if lost:
            self.tier.lose(transfer.zone, transfer.slot)
        self._catalog.forget(self.tier.loaded([transfer.slot]))
        self._jobs.chunk_ended(job, transfer.name.key, error)

    def _giving_up(self, job: Job[Transfer], is_late: bool) -> None:
        """If a job is late, count its unfinished chunks as late, and open the breaker of its direction."""
        if not is_late:
            return
        for transfer in job.left.values():
            self.tier.counts_of(transfer.zone).late += 1
        breaker = self.read_breaker if job.is_load else self.write_breaker
        if not breaker.is_open:
            logger.warning(
                "The disk tier gave up a %s that took too long, with %d unfinished chunks", _way(job), len(job.left)
            )
        breaker.failed(time.monotonic(), f"a transfer did not finish within {self._settings.seconds:g} s", at_once=True)

    def _run_write(self, tenant: str, work: Callable[[], object], ended: Ended) -> None:
        self._results.run(self._writers, tenant, work, ended)


def _way(job: Job[Transfer]) -> str:
    return "load" if job.is_load else "store"

"""The disk tier: whose chunks are on the disk, who may write and read how many, and what comes back.

All decisions are made here, from memory, on the caller's thread; threads of the tier's own wait for the disk. What they
have done is taken note of in :meth:`DiskTier.finished`. So a disk that is slow, full, read-only or gone costs hits, and
no caller ever waits for it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from tenantzone_contract.config import RuntimeConfig
from tenantzone_runtime.disk.adoption import Adoption
from tenantzone_runtime.disk.breaker import Breaker
from tenantzone_runtime.disk.figures import DiskFigures, Receipt, ZoneFigures
from tenantzone_runtime.disk.layout import ObjectName
from tenantzone_runtime.disk.objects import Objects
from tenantzone_runtime.disk.sealing import CorruptObjectError, Seal, new_nonce
from tenantzone_runtime.disk.spaces import Entry, Slots, Space
from tenantzone_runtime.disk.sweeping import Sweeping
from tenantzone_runtime.disk.transfers import AbandonedError, Job, JobEnd, Memory, Removal, Transfer, end_of, error_of
from tenantzone_runtime.disk.workers import Workers
from tenantzone_runtime.zones.tier import Tier
from tenantzone_runtime.zones.zone import Zone

logger = logging.getLogger(__name__)

Chunks = Sequence[tuple[bytes, memoryview]]
"""Keys, and the caller's memory of each."""


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """How the tier moves chunks."""

    readers: int = 8
    """Threads."""
    writers: int = 4
    seconds: float = 2.0
    """After which a job is given up: whoever waits for a load computes instead."""


class DiskTier:
    """One engine's tier on one disk.

    Args:
        objects: the files.
        tier: the zones' shares, of as many chunks as files may be there, each as long as a file.
        seals: the seal of a tenant's zone since a purge, by tenant and the purge's id (empty: none).
        settings: how chunks are moved.
    """

    def __init__(
        self,
        objects: Objects,
        tier: Tier,
        seals: Callable[[str, str], Seal],
        settings: DiskSettings,
    ) -> None:
        self.tier = tier
        self.chunk_bytes = objects.content_bytes
        self.write_breaker, self.read_breaker, self.removal_breaker = Breaker(), Breaker(), Breaker()
        self._objects = objects
        self._seals = seals
        self._settings = settings
        self._slots = Slots(tier.chunk_count)
        self._spaces: dict[str, Space] = {}
        self._space_of: dict[int, tuple[Space, bytes]] = {}
        """Of each slot that is held: its space, and its key there."""
        self._jobs: dict[int, Job[Transfer]] = {}
        self._job_ends: list[JobEnd] = []
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._writers = Workers("tenantzone-disk-write", settings.writers)
        self._readers = Workers("tenantzone-disk-read", settings.readers)
        self._removals_under_way: set[Removal] = set()
        self._removals_failed = 0
        self._adoption = Adoption(objects, tier, self._slots)
        self._sweeping = Sweeping(objects, self._slots, self._run_write, self._swept)
        self._adoption.list_files(self._run_write, self._could_not_list)

    @property
    def is_open(self) -> bool:
        """Whether chunks may be stored: what is on the disk is known, and what belongs to nobody is gone."""
        return self._adoption.is_done and not self._sweeping.has_strangers

    @property
    def problem(self) -> str:
        """What the disk fails at now, and why, for people; empty: nothing."""
        ways = {"writes": self.write_breaker, "reads": self.read_breaker, "removals": self.removal_breaker}
        return "; ".join(f"{way} fail: {breaker.error}" for way, breaker in ways.items() if breaker.is_open)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is on its way, and nothing has to be removed."""
        in_transfer = any(zone.in_use for zone in self.tier.ledger.zones.values())
        return not (in_transfer or self._slots.to_remove or self._sweeping.has_work)

    # Requests

    def find(self, zone: Zone, key: bytes, promised: int = 0) -> bool:
        """Whether a chunk of the zone is there and may be loaded now.

        Args:
            zone: whose request asks.
            key: of the chunk.
            promised: chunks that the zone was told of, and has not begun to load.
        """
        counts = self.tier.counts_of(zone)
        entry = self._entry(zone, key)
        if entry is None or not self.tier.has_stored(zone, entry.slot):
            counts.misses += 1
            return False
        if promised >= self.tier.loadable(zone) or not self.read_breaker.allows(time.monotonic()):
            counts.reads_refused += 1
            return False
        return True

    def store(self, number: int, zone: Zone, chunks: Chunks, protected: Iterable[bytes] = ()) -> None:
        """Begin to store what is not there already, as far as the zone may; :meth:`finished` tells of the job.

        Args:
            number: of the job.
            zone: whose chunks they are.
            chunks: in the order of the prompt; the memory stays as it is until the job has ended.
            protected: keys of the same prompt's beginning, which must not go for them.
        """
        now = time.monotonic()
        job: Job[Transfer] = Job(number, False, now, self.chunk_bytes)
        new = [chunk for chunk in chunks if self._entry(zone, chunk[0]) is None]
        slots = self._slots_for(zone, len(new), protected, now) if new else []
        self.tier.store(zone, slots)
        for slot, (key, view) in zip(slots, new, strict=False):
            space = self._space(zone)
            name = ObjectName(key, new_nonce())
            space.entries[key] = Entry(slot, name)
            self._space_of[slot] = space, key
            transfer = job.left[key] = Transfer(zone, slot, name, space.seal, Memory(view))
            removal = self._slots.removal(slot)
            ended = partial(self._stored, job, space, transfer, removal)
            space.transfers += 1
            self._run_write(zone.spec.tenant, partial(transfer.write, self._objects, removal), ended)
        self._begin(job)

    def load(self, number: int, zone: Zone, chunks: Chunks) -> None:
        """Begin to load chunks that the zone was told of; those that it can't have any more count as failed.

        Args:
            number: of the job.
            zone: whose chunks they are.
            chunks: the memory of each is as it was, or all of the chunk, when the job has ended.
        """
        job: Job[Transfer] = Job(number, True, time.monotonic(), self.chunk_bytes)
        space = self._spaces.get(zone.spec.tenant)
        for key, view in chunks:
            entry = self._entry(zone, key)
            if (
                space is None
                or entry is None
                or not self.tier.has_stored(zone, entry.slot)
                or not self.tier.loadable(zone)
            ):
                job.failed += 1
                continue
            self.tier.load(zone, [entry.slot])
            transfer = job.left[key] = Transfer(zone, entry.slot, entry.name, space.seal, Memory(view))
            space.transfers += 1
            ended = partial(self._loaded, job, space, transfer)
            self._run(self._readers, zone.spec.tenant, partial(transfer.read, self._objects), ended)
        self._begin(job)

    def end_at_once(self, number: int) -> None:
        """End a job of somebody who may store nothing."""
        self._begin(Job(number, False, time.monotonic(), self.chunk_bytes))

    def use(self, zone: Zone, keys: Iterable[bytes]) -> None:
        """Note that chunks were used, in this order."""
        self.tier.use(zone, self._slots_of(zone, keys))

    def lose(self, zone: Zone, keys: Iterable[bytes]) -> None:
        """Find no more, and remove, what a zone has under these keys: it is not what it should be."""
        for slot in self._slots_of(zone, keys):
            self._forget(self.tier.lose(zone, slot))

    def renew(self) -> None:
        """Find no more, and remove, all that is there: it was sealed by a key that is not in force any more."""
        for tenant, space in list(self._spaces.items()):
            zone = self.tier.ledger.zones.get(tenant)
            if zone is not None:
                self.lose(zone, list(space.entries))
            self._spaces[tenant] = self._new_space(tenant, space.purge)

    def finished(self) -> list[JobEnd]:
        """Take note of what the threads have done; returns the jobs that have ended, also those given up by now."""
        self._take_note()
        ended, self._job_ends = self._job_ends, []
        return ended

    def _take_note(self) -> None:
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                break
            event()
        now = time.monotonic()
        for job in list(self._jobs.values()):
            if now - job.began > self._settings.seconds:
                self._give_up(job, now)

    def give_up_jobs(self) -> None:
        """End all jobs at once: no memory of the caller's is touched when this returns."""
        for job in list(self._jobs.values()):
            job.give_up()
            self._end(job)

    # Configs and time

    def apply(self, config: RuntimeConfig) -> None:
        """Enforce a new config of the engine's zones, with the tier's shares.

        What a purge names and what belongs to zones that are gone is found no more when this returns, and removed from
        the disk after it: :meth:`take_receipts` tells when.
        """
        now = time.monotonic()
        given_up = self.tier.apply(config, now)
        self._retire_gone()
        for zone in config.zones:
            space = self._spaces.get(zone.tenant)
            if space is None:
                self._spaces[zone.tenant] = self._new_space(zone.tenant, zone.purge)
            elif zone.purge and zone.purge != space.purge:
                self._retire(space, zone.purge)
                self._spaces[zone.tenant] = self._new_space(zone.tenant, zone.purge)
        self._forget(given_up)
        self._tidy()
        self._sweeping.go_on()

    def upkeep(self) -> None:
        """Do what time does to zones and chunks, and try again what the disk has refused; several times a second."""
        # An engine without requests makes no steps, and asks for nothing that has ended.
        self._take_note()
        now = time.monotonic()
        self._forget(self.tier.upkeep(now))
        self._tidy()
        if not self.removal_breaker.allows(now):
            return
        self._adoption.list_files(self._run_write, self._could_not_list)
        at_most = 1 if self.removal_breaker.is_open else None
        for slot, removal in self._slots.to_remove[:at_most]:
            if removal not in self._removals_under_way:
                self._remove(slot, removal)
        self._sweeping.go_on(at_most)

    def take_receipts(self) -> list[Receipt]:
        """What became of the files of purges and of zones that went, of those that are removed since the last call."""
        return self._sweeping.take_receipts()

    def stop(self) -> None:
        """Begin nothing more, and let nobody wait."""
        self.give_up_jobs()
        self._writers.stop()
        self._readers.stop()

    def figures(self) -> DiskFigures:
        """What there is and what was counted, for a report."""
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
            breaker_openings=sum(breaker.openings for breaker in (self.write_breaker, self.read_breaker)),
            leftovers=self._adoption.leftovers,
            found=self._adoption.found,
            removals_failed=self._removals_failed,
            zones=zones,
        )

    # What the threads have done

    def _stored(
        self, job: Job[Transfer], space: Space, transfer: Transfer, removal: Removal | None, error: Exception | None
    ) -> None:
        space.transfers -= 1
        counts = self.tier.counts_of(transfer.zone)
        key = transfer.name.key
        if error is None:
            if removal is not None:
                self._slots.removed(transfer.slot, removal)
            self.write_breaker.succeeded()
        elif not isinstance(error, AbandonedError):
            counts.write_failures += 1
            self._failed(self.write_breaker, "write a chunk", error)
        self._forget(self.tier.stored([transfer.slot], success=error is None))
        self._ended(job, key, error)

    def _loaded(self, job: Job[Transfer], space: Space, transfer: Transfer, error: Exception | None) -> None:
        space.transfers -= 1
        counts = self.tier.counts_of(transfer.zone)
        lost = False
        if error is None:
            counts.read += 1
            self.read_breaker.succeeded()
        elif isinstance(error, CorruptObjectError):
            counts.corrupt += 1
            lost = True
        elif isinstance(error, FileNotFoundError):
            counts.vanished += 1
            lost = True
        elif not isinstance(error, AbandonedError):
            counts.read_failures += 1
            self._failed(self.read_breaker, "read a chunk", error)
            lost = True
        if lost:
            self.tier.lose(transfer.zone, transfer.slot)
        self._forget(self.tier.loaded([transfer.slot]))
        self._ended(job, transfer.name.key, error)

    def _failed(self, breaker: Breaker, doing: str, error: Exception) -> None:
        if not breaker.is_open:
            logger.warning("The disk tier could not %s: %s", doing, error)
        breaker.failed(time.monotonic(), str(error))

    def _begin(self, job: Job[Transfer]) -> None:
        if job.left:
            self._jobs[job.number] = job
        else:
            self._job_ends.append(end_of(job, time.monotonic()))

    def _ended(self, job: Job[Transfer], key: bytes, error: Exception | None) -> None:
        if job.ended(key, error) and not job.left:
            self._end(job)

    def _give_up(self, job: Job[Transfer], now: float) -> None:
        """Let nobody wait for a job any longer. What is on its way goes on, and is charged until it ends."""
        for transfer in job.left.values():
            self.tier.counts_of(transfer.zone).late += 1
        breaker = self.read_breaker if job.is_load else self.write_breaker
        if not breaker.is_open:
            logger.warning("The disk tier was late with a %s of %d chunks", _way(job), len(job.left))
        breaker.failed(now, f"not done within {self._settings.seconds:g} s", at_once=True)
        job.give_up()
        self._end(job)

    def _end(self, job: Job[Transfer]) -> None:
        del self._jobs[job.number]
        self._job_ends.append(end_of(job, time.monotonic()))

    # Slots and spaces

    def _slots_for(self, zone: Zone, count: int, protected: Iterable[bytes], now: float) -> list[int]:
        if zone.leaving or zone.spec.retention.no_store:
            return []
        counts = self.tier.counts_of(zone)
        # Of a purge that is not over, new files would go with the old ones.
        if not self.is_open or not self.write_breaker.allows(now) or self._is_purging(zone):
            counts.refuse_writes("closed", count)
            return []
        granted, given_up = self.tier.make_room(zone, count, self._slots_of(zone, protected))
        self._forget(given_up)
        slots = self._slots.take(granted)
        # What a purge gave up has to be removed from the disk first.
        counts.refuse_writes("closed", granted - len(slots))
        return slots

    def _is_purging(self, zone: Zone) -> bool:
        return self._sweeping.is_going(self._space(zone).seal.folder)

    def _forget(self, slots: Iterable[int]) -> None:
        """Forget chunks that were given up, and have their files removed."""
        for slot in slots:
            space, key = self._space_of.pop(slot)
            entry = space.entries.pop(key)
            if space.receipt is not None:
                # Their files go with all others of the space.
                space.given_up.append(slot)
                continue
            removal = Removal(self._objects, space.seal.folder, entry.name, self._slots.removal(slot))
            self._slots.give_up(slot, removal)
            self._remove(slot, removal)

    def _remove(self, slot: int, removal: Removal) -> None:
        self._removals_under_way.add(removal)
        self._run_write("", removal.make, partial(self._removed, slot, removal))

    def _removed(self, slot: int, removal: Removal, error: Exception | None) -> None:
        self._removals_under_way.discard(removal)
        if error is None:
            self._slots.removed(slot, removal)
        self._swept(error)

    def _swept(self, error: Exception | None) -> None:
        if error is None:
            self.removal_breaker.succeeded()
        else:
            self._removals_failed += 1
            self._failed(self.removal_breaker, "remove a file", error)

    def _could_not_list(self, error: Exception) -> None:
        self._failed(self.removal_breaker, "list its folder", error)

    def _tidy(self) -> None:
        """Make what was found the zones', and have go what is no zone's any more."""
        if self._adoption.is_ready and self.tier.tenancy.pool is not None:
            for space, key, entry in self._adoption.adopt(self._spaces):
                space.entries[key] = entry
                self._space_of[entry.slot] = space, key
            self._sweeping.add_strangers(self._adoption.strangers, self._adoption.excess)
            self._sweeping.go_on()
        self._retire_gone()

    def _retire_gone(self) -> None:
        for tenant in [tenant for tenant in self._spaces if self._is_gone(tenant)]:
            self._retire(self._spaces.pop(tenant), "")

    def _is_gone(self, tenant: str) -> bool:
        zone = self.tier.ledger.zones.get(tenant)
        return zone is None or zone.leaving

    def _retire(self, space: Space, purge: str) -> None:
        space.receipt = Receipt(space.tenant, purge, len(space.entries))
        self._sweeping.add(space)

    def _new_space(self, tenant: str, purge: str) -> Space:
        return Space(tenant, purge, self._seals(tenant, purge))

    def _space(self, zone: Zone) -> Space:
        tenant = zone.spec.tenant
        space = self._spaces.get(tenant)
        if space is None:
            space = self._spaces[tenant] = self._new_space(tenant, zone.spec.purge)
        return space

    def _entry(self, zone: Zone, key: bytes) -> Entry | None:
        space = self._spaces.get(zone.spec.tenant)
        return None if space is None else space.entries.get(key)

    def _slots_of(self, zone: Zone, keys: Iterable[bytes]) -> list[int]:
        entries = [self._entry(zone, key) for key in keys]
        return [entry.slot for entry in entries if entry is not None]

    def _run_write(self, tenant: str, work: Callable[[], object], ended: Callable[[Exception | None], None]) -> None:
        self._run(self._writers, tenant, work, ended)

    def _run(
        self, workers: Workers, tenant: str, work: Callable[[], object], ended: Callable[[Exception | None], None]
    ) -> None:
        workers.submit(tenant, lambda: self._events.put(partial(ended, error_of(work))))


def _way(job: Job[Transfer]) -> str:
    return "load" if job.is_load else "store"

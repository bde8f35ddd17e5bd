"""Stands in for the workers of an engine with tiers: memory is the names of its would-be content, and copies take time.

A block's content is named by who computed it and by its position among the tokens. Their hash, which identifies the
owner, is compared with that of the request that reads; so it is also noticed if a block was given to another request
before it had been copied.
"""

from copy import copy
from random import Random
from types import SimpleNamespace

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingWorkerMetadata,
)
from vllm.v1.core.single_type_kv_cache_manager import MambaManager
from vllm.v1.outputs import KVConnectorOutput

from hack.harness.scheduler import BLOCK_TOKENS
from tenantzone_runtime.disk.transfers import JobEnd
from tenantzone_runtime.engine.tiers.disk_tier import ZoneDiskTier
from tenantzone_runtime.offloading_flags import CONNECTOR, CONNECTOR_MODULE
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds

CHUNK_BYTES = 8192
"""Bytes of a block of the harness's model."""


def with_tiers(config, chunks, groups=1, **more):
    """The same config for an engine with a CPU memory tier of `chunks` chunks, and a model of `groups` groups."""
    config = copy(config)
    extra = {
        "spec_name": "ZoneOffloadingSpec",
        "spec_module_path": "tenantzone_runtime.engine.tiers.offloading_spec",
        # Without its own memory, vLLM assumes that a block has room for each group.
        "cpu_bytes_to_use": chunks * groups * CHUNK_BYTES,
    }
    config.kv_transfer_config = KVTransferConfig(
        kv_connector=CONNECTOR,
        kv_connector_module_path=CONNECTOR_MODULE,
        kv_role="kv_both",
        kv_connector_extra_config=extra | more,
    )
    return config


FOREIGN = "memory that was never computed"


class TierWorker:
    """Copies what the scheduler orders, some steps later than possible.

    Args:
        driver: the driver whose steps it takes part in.
        chunks: chunks of the memory tier.
        chance: draws how many steps a copy takes.
        slowest: the most steps that a copy takes.
    """

    def __init__(self, driver, chance=None, slowest=0):
        self.scheduler = driver.scheduler
        self.chance = chance or Random(0)
        self.fastest, self.slowest = 0, slowest
        self.checks = True
        """Whether reads are compared with the expected content."""
        self.blocks = {}
        self.chunks = {}
        self.stored = self.loaded = 0
        """Blocks stored and loaded."""
        self._deferred = {}
        self._under_way = {}
        """By job: the copy, whether it is a load, its owner, and the steps until it is done."""
        self._done = []
        managers = driver.scheduler.kv_cache_manager.coordinator.single_type_managers
        self._windows = [getattr(caches, "sliding_window", None) for caches in managers]
        """Of each group, the attention window in tokens; None: unbounded."""
        self._states = [isinstance(caches, MambaManager) for caches in managers]
        """Of each group, whether its blocks are states."""
        driver.copy = self.step

    def step(self, output):
        """One step of the workers: copies that must not wait, zeroing, computation, and finished copies."""
        meta = output.kv_connector_metadata
        for job_id in meta.jobs_to_flush:
            if (job := meta.store_jobs.pop(job_id, None)) is not None:
                self._deferred[job_id] = job
        self._submit_stores()
        for job_id in meta.jobs_to_flush:
            self._finish(job_id)
        for block_id in output.new_block_ids_to_zero or ():
            self.blocks[block_id] = FOREIGN
        self._compute(output)
        for job_id, job in meta.load_jobs.items():
            self._begin(job_id, job, is_load=True)
        self._deferred.update(meta.store_jobs)
        return self._report()

    @property
    def is_copying(self):
        """Whether a copy is in progress."""
        return bool(self._under_way or self._deferred)

    def hurry(self):
        """Makes all copies in progress end with the next step."""
        for job in self._under_way.values():
            job[2] = 0

    def _submit_stores(self):
        deferred, self._deferred = self._deferred, {}
        for job_id, job in deferred.items():
            self._begin(job_id, job, is_load=False)

    def _begin(self, job_id, job, *, is_load):
        self._under_way[job_id] = [job, is_load, self.chance.randint(self.fastest, self.slowest)]

    def _finish(self, job_id):
        if job_id in self._under_way:
            job, is_load, _ = self._under_way.pop(job_id)
            self._copy(job, is_load)
            self._done.append((job_id, job.req_id if is_load else None))

    def _copy(self, job, is_load):
        of_engine, of_tier = (job.dst_spec, job.src_spec) if is_load else (job.src_spec, job.dst_spec)
        pairs = zip(of_engine.block_ids.tolist(), of_tier.block_ids.tolist(), strict=True)
        for block_id, chunk_id in pairs:
            if is_load:
                self.blocks[block_id] = self.chunks.get(chunk_id, FOREIGN)
                self.loaded += 1
            else:
                self.chunks[chunk_id] = self.blocks.get(block_id, FOREIGN)
                self.stored += 1

    def _compute(self, output):
        manager = self.scheduler.kv_cache_manager
        for name, count in output.num_scheduled_tokens.items():
            for group, table in enumerate(manager.get_block_ids(name)):
                compute = self._compute_state if self._states[group] else self._compute_group
                compute(self.scheduler.requests[name], count, group, table)

    def _compute_state(self, request, count, group, table):
        """A state is read at the end of the previous tokens, and written at the end of the step's: nowhere between."""
        end = request.num_computed_tokens
        begin = end - count
        if begin and self.checks:
            read = self._hash(self.blocks.get(table[(begin - 1) // BLOCK_TOKENS], FOREIGN))
            wanted = self._hash(_state(request, begin, group))
            assert read == wanted, f"{request.request_id} goes on from another state than that of {begin} tokens"
        self.blocks[table[(end - 1) // BLOCK_TOKENS]] = _state(request, end, group)

    def _compute_group(self, request, count, group, table):
        # The scheduler has already counted the step's tokens.
        end = request.num_computed_tokens
        begin, window = end - count, self._windows[group]
        first = 0 if window is None else max(0, begin - window + 1) // BLOCK_TOKENS
        for index in range(first, min(begin // BLOCK_TOKENS, len(request.block_hashes))):
            if self.checks:
                read, wanted = self._hash(self.blocks.get(table[index], FOREIGN)), (request.block_hashes[index], group)
                assert read == wanted, f"{request.request_id} reads another's memory at block {index} of group {group}"
        for index in range(begin // BLOCK_TOKENS, -(-end // BLOCK_TOKENS)):
            is_full = (index + 1) * BLOCK_TOKENS <= end
            self.blocks[table[index]] = (request, index, group) if is_full else FOREIGN

    @staticmethod
    def _hash(content):
        if content is FOREIGN:
            return FOREIGN
        request, index, group = content
        return request.block_hashes[index] if isinstance(index, int) else (request.request_id, index), group

    def _report(self):
        for job_id, job in list(self._under_way.items()):
            job[2] -= 1
            if job[2] < 0:
                self._finish(job_id)
        done, self._done = self._done, []
        completed = {job_id: 1 for job_id, _ in done}
        return KVConnectorOutput(
            finished_recving={name for _, name in done if name is not None},
            kv_connector_worker_meta=OffloadingWorkerMetadata(completed_jobs=completed) if completed else None,
        )


def _state(request, tokens, group):
    """The state after `tokens` tokens: others have the same only at a block's end."""
    return request, tokens // BLOCK_TOKENS - 1 if tokens % BLOCK_TOKENS == 0 else f"{tokens} tokens", group


class FakeDisk:
    """Stands in for `DiskTier` in vLLM's tiering, without files: it is slow, refuses, fails and loses at random.

    It moves no content: the disk finds the worker's chunks where they are.
    """

    def __init__(self, files, chunk_bytes, worker, chance, *, failing, now, bounds):
        self.tier = Tier("disk", files, chunk_bytes, bounds, now)
        self.chunk_bytes = chunk_bytes
        self.problem = ""
        self._worker = worker
        self._chance = chance
        self._failing = failing
        self._slots = list(range(files))
        self._files = {}
        """By tenant and key: slot and content."""
        self._jobs = []
        self._ended = []
        self._is_held = False

    def hold(self):
        """Stops all progress from now on."""
        self._is_held = True

    def release(self):
        self._is_held = False

    def _fails(self):
        return self._failing and self._chance.random() < 0.2

    def find(self, zone, key, promised=0):
        entry = self._files.get((zone, key))
        return entry is not None and self.tier.has_stored(zone, entry[0]) and promised < self.tier.loadable(zone)

    def store(self, number, zone, chunks, protected=()):
        new = [chunk for chunk in chunks if (zone, chunk[0]) not in self._files]
        granted, given_up = self.tier.make_room(zone, len(new), self._slots_of(zone, protected))
        self._forget(given_up)
        self._begin_store(number, zone, new, [self._slots.pop() for _ in range(granted)])

    def holds(self, zone, key):
        return (zone, key) in self._files and self.tier.has_stored(zone, self._files[zone, key][0])

    def may_load(self, zone, count, promised=0):
        return count + promised <= self.tier.loadable(zone)

    is_readable = True

    def try_reading(self):
        """Does nothing: no read fails here."""

    def lacks(self, zone, hit):
        return [key for key in hit if (zone, key) not in self._files]

    def store_hit(self, number, zone, chunks, hit, prompt):
        assert {key[:-4] for key in hit} <= {key[:-4] for key in prompt}
        there = self._slots_of(zone, hit)
        granted, given_up = self.tier.make_room(zone, len(chunks), there, whole=True)
        self._forget(given_up)
        slots = [self._slots.pop() for _ in range(granted)]
        self._begin_store(number, zone, chunks, slots)
        hits = [self._slots_of(zone, hit)] if len(slots) == len(chunks) else []
        self._forget(self.tier.link(zone, [*there, *slots], hits))

    def _slots_of(self, zone, keys):
        return [self._files[zone, key][0] for key in keys if (zone, key) in self._files]

    def _begin_store(self, number, zone, new, slots):
        self.tier.store(zone, slots)
        moved = []
        for slot, (key, view) in zip(slots, new, strict=False):
            self._files[zone, key] = (slot, self._worker.chunks.get(view, FOREIGN))
            moved.append((key, slot))
        self._jobs.append((number, False, zone, moved, self._chance.randint(0, 3)))

    def load(self, number, zone, chunks, *, is_tried=False):
        moved = []
        for key, view in chunks:
            if self.find(zone, key):
                slot, content = self._files[zone, key]
                self.tier.load(zone, [slot])
                moved.append((key, slot, view, content))
            else:
                moved.append((key, None, view, None))
        self._jobs.append((number, True, zone, moved, self._chance.randint(0, 3)))

    def end_at_once(self, number):
        self._ended.append(JobEnd(number, True, [], 0.0, 0))

    def use(self, zone, keys):
        self.tier.use(zone, self._slots_of(zone, keys))

    def finished(self):
        going_on = []
        for number, is_load, zone, moved, turns in self._jobs:
            if turns or self._is_held:
                going_on.append((number, is_load, zone, moved, max(0, turns - 1)))
            elif is_load:
                self._loaded(number, zone, moved)
            else:
                self._stored(number, moved)
        self._jobs = going_on
        ended, self._ended = self._ended, []
        return ended

    def _stored(self, number, moved):
        failed = self._fails()
        self._forget(self.tier.stored([slot for _, slot in moved], success=not failed))
        self._ended.append(JobEnd(number, not failed, [key for key, _ in moved if not failed], 0.0, 0))

    def _loaded(self, number, zone, moved):
        arrived = []
        for key, slot, view, content in moved:
            if slot is None:
                continue
            if self._fails():
                self.tier.lose(zone, slot)
            else:
                self._worker.chunks[view] = content
                arrived.append(key)
            self._forget(self.tier.loaded([slot]))
        self._ended.append(JobEnd(number, len(arrived) == len(moved), arrived, 0.0, 0))

    def _forget(self, slots):
        gone = set(slots)
        for name in [name for name, (slot, _) in self._files.items() if slot in gone]:
            self._slots.append(self._files.pop(name)[0])

    def lose(self, zone, keys):
        for key in keys:
            if (zone, key) in self._files:
                self._forget(self.tier.lose(zone, self._files[zone, key][0]))

    def renew_in_parts(self):
        for given_up in self.tier.evict_all(1):
            self._forget(given_up)
            yield

    def give_up_jobs(self):
        self._is_held = False
        ended = []
        while self._jobs:
            ended += self.finished()
        self._ended = ended

    def apply_in_parts(self, config):
        for _, given_up in self.tier.apply_in_parts(config, self.tier.ledger.now, 1):
            self._forget(given_up)
            yield

    def upkeep_in_parts(self):
        for given_up in self.tier.upkeep_in_parts(self.tier.ledger.now, 1):
            self._forget(given_up)
            yield

    def take_receipts(self):
        return []

    def stop(self):
        pass


class FakeDiskTier(ZoneDiskTier):
    """Names the memory of a chunk by its number, as the worker does."""

    def _chunks(self, job):
        return [(key, int(chunk_id)) for key, chunk_id in zip(job.keys, job.chunk_ids, strict=True)]


def give_disk(scheduler, worker, files, chance, *, failing=False):
    """Puts a disk below the memory of an engine that has had nothing to do yet."""
    manager = scheduler.connector.scheduler.manager
    memory = manager.primary_tier
    shape = scheduler.connector.scheduler._shape
    bounds = memory.tier.bounds if shape.is_linked else TransferBounds(16, 16)
    size, now = memory.tier.chunk_bytes, memory.tier.ledger.now
    disk = FakeDisk(files, size, worker, chance, failing=failing, now=now, bounds=bounds)
    tier = FakeDiskTier(SimpleNamespace(), memory.get_kv_memoryview(), "disk", disk)
    manager.__init__(memory, [tier])
    if shape.is_linked:
        manager.move_whole_hits(shape)
    scheduler.tiers.__init__(scheduler.connector)
    return disk

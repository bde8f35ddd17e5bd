"""vLLM's real schedulers over one manager and its files, shared by several tests."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, with_flags
from tenantzone_runtime.disk.opening import open_disk_tier
from tenantzone_runtime.disk.tier import DiskSettings
from tenantzone_runtime.engine.tiers.disk_tier import ZoneDiskTier
from tenantzone_runtime.engine.tiers.shared_tier import ZoneSharedTier
from tenantzone_runtime.shared.opening import open_shared_tier
from tenantzone_runtime.shared.transfers.writing import Shape
from tests.disk.disks import SALT_KEY, instance
from tests.engine.tier_worker import FOREIGN, TierWorker, with_tiers
from tests.shared_tier.engines import HANG, PATIENT, standing_still
from tests.zones.core import declare


class Rows:
    """The memory tier's rows: each has the group and the hash of the block copied there, which identify its owner.

    A state that is not at a block's end has no hash, so no lookup finds it.
    """

    def __init__(self, view, size):
        self.view, self.size = view, size

    def __setitem__(self, chunk_id, content):
        name, group = (b"", 0) if content is FOREIGN else TierWorker._hash(content)
        name = name if isinstance(name, bytes) else b""
        row = bytes([len(name), group]) + name
        self.view[chunk_id * self.size : (chunk_id + 1) * self.size] = row.ljust(self.size, b"\0")

    def get(self, chunk_id, _):
        row = bytes(self.view[chunk_id * self.size : (chunk_id + 1) * self.size])
        name = row[2 : 2 + row[0]]
        return (SimpleNamespace(block_hashes=[name]), 0, row[1]) if name else FOREIGN


class SharingEngine(Driver):
    """An engine of `capacity` blocks and `chunks` chunks that shares storages; with one group if no kinds are given."""

    def __init__(
        self, config, url, capacity=40, chunks=60, settings=PATIENT, *, kinds=(), window=None, disk=None, **flags
    ):  # fmt: skip
        config = with_tiers(with_flags(config, **flags), chunks, len(kinds) or 1)
        super().__init__(make_scheduler(config, capacity, window=window, kinds=kinds))
        shape = self.scheduler.connector.scheduler._shape
        is_linked, size = shape.is_linked, self.scheduler.tiers.served[0].tier.chunk_bytes
        manager = self.scheduler.connector.scheduler.manager
        view = manager.primary_tier.get_kv_memoryview()
        self.shared = open_shared_tier(
            url,
            None,
            Shape(size, BLOCK_TOKENS, shape if is_linked else None),
            salt_key=lambda: SALT_KEY,
            has_pool_key=lambda: True,
            instance=instance,
            settings=settings.for_chunks(manager.primary_tier.tier.bounds.loads) if is_linked else settings,
        )
        self.shared._client._token = lambda: "chat"
        self.worker = TierWorker(self)
        shared = ZoneSharedTier(SimpleNamespace(), view, "shared", self.shared)
        self.disk = None if disk is None else self._open_disk(disk, manager, shape, size)
        local = [] if self.disk is None else [ZoneDiskTier(SimpleNamespace(), view, "disk", self.disk)]
        manager.__init__(manager.primary_tier, [*local, shared])
        if is_linked:
            manager.move_whole_hits(shape)
        self.scheduler.tiers.__init__(self.scheduler.connector)
        self.memory = manager.primary_tier.tier
        self.worker.chunks = Rows(view.cast("B"), size)

    @staticmethod
    def _open_disk(folder, manager, shape, size):
        return open_disk_tier(
            folder,
            500 * (size + 8192),
            size,
            salt_key=lambda: SALT_KEY,
            instance=instance,
            bounds=manager.primary_tier.tier.bounds,
            settings=DiskSettings(readers=2, writers=2, seconds=HANG),
            shape=shape if shape.is_linked else None,
            now=time.monotonic(),
        )

    def rest(self):
        """Steps until nothing is asked, copied or written; an eviction may take a lease."""
        disk = self.disk or SimpleNamespace(is_at_rest=True)
        self.until(lambda: self.shared._storing.is_at_rest and disk.is_at_rest and not self.scheduler.has_requests())

    def until(self, condition):
        """Steps until the condition holds."""
        until = time.monotonic() + HANG
        while not condition():
            assert time.monotonic() < until, "it does not come to that"
            self.step()
            self.scheduler.let_time_pass()
            time.sleep(0.001)

    def run(self):
        self.rest()

    def evict(self, *tenants):
        """Evicts what these tenants cache in blocks; the tiers keep it."""
        for tenant in tenants:
            self.scheduler.block_pool.evict(self.zone(tenant), "reset")

    def forget_memory(self):
        """Empties the memory tier, so that only storages have what was stored."""
        manager = self.scheduler.connector.scheduler.manager
        for given_up in self.memory.evict_all():
            manager.primary_tier._forget(given_up)

    def end(self):
        self.worker.chunks.view.release()
        self.scheduler.shutdown()


def check_that_it_is_computed_after_its_budget(engine, manager):
    """Checks a request of an engine whose manager queries have little time and get no answer."""
    with standing_still(manager):
        request = engine.send("acme", prompt(6))
        while request.request_id in engine.scheduler.requests:
            engine.step()
            engine.scheduler.let_time_pass()
        assert engine.worker.loaded == 0
        assert engine.shared.figures().questions == {"late": 1}
    engine.rest()


@contextmanager
def sharing_engines(config, manager):
    """Makes engines of one pool, which has room in the manager's storages and the zones acme and burst."""
    manager.share({"name": "test.pool", "pools": ["ml/chat"]})
    made = []

    def make(count=2, **options):
        made.extend(SharingEngine(config, manager.url, **options) for _ in range(count))
        for each in made:
            each.declare(declare("acme"), declare("burst"))
        return made

    try:
        yield make
    finally:
        for each in made:
            each.end()

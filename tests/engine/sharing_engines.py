"""vLLM's real schedulers over one manager and its files, for all tests that want some."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler
from tenantzone_runtime.engine.shared_tier import ZoneSharedTier
from tenantzone_runtime.shared.opening import open_shared_tier
from tenantzone_runtime.shared.writing import Shape
from tests.disk.disks import SALT_KEY, instance
from tests.engine.tier_worker import CHUNK_BYTES, FOREIGN, TierWorker, with_tiers
from tests.shared_tier.engines import HANG, PATIENT
from tests.zones.core import declare


class Rows:
    """The memory tier's rows: each has the hash of the block that was copied there, which says whose it is."""

    def __init__(self, view):
        self.view = view

    def __setitem__(self, chunk_id, content):
        name = b"" if content is FOREIGN else TierWorker._hash(content)[0]
        row = bytes([len(name)]) + name
        self.view[chunk_id * CHUNK_BYTES : (chunk_id + 1) * CHUNK_BYTES] = row.ljust(CHUNK_BYTES, b"\0")

    def get(self, chunk_id, _):
        row = bytes(self.view[chunk_id * CHUNK_BYTES : (chunk_id + 1) * CHUNK_BYTES])
        name = row[1 : 1 + row[0]]
        return (SimpleNamespace(block_hashes=[name]), 0, 0) if name else FOREIGN


class SharingEngine(Driver):
    """An engine of so many blocks and chunks, which shares storages."""

    def __init__(self, config, url, capacity=40, chunks=60, settings=PATIENT):
        super().__init__(make_scheduler(with_tiers(config, chunks), capacity))
        manager = self.scheduler.connector.scheduler.manager
        view = manager.primary_tier.get_kv_memoryview()
        self.shared = open_shared_tier(
            url,
            None,
            Shape(CHUNK_BYTES, BLOCK_TOKENS),
            salt_key=lambda: SALT_KEY,
            has_pool_key=lambda: True,
            instance=instance,
            settings=settings,
        )
        self.shared._client._token = lambda: "chat"
        manager.__init__(manager.primary_tier, [ZoneSharedTier(SimpleNamespace(), view, "shared", self.shared)])
        self.scheduler.tiers.__init__(self.scheduler.connector)
        self.worker = TierWorker(self)
        self.worker.chunks = Rows(view.cast("B"))

    def rest(self):
        """Step until nothing is asked, copied or written; what has to go may take a lease."""
        until = time.monotonic() + HANG
        while self.scheduler.has_requests() or not self.shared._storing.is_at_rest:
            assert time.monotonic() < until, "it does not end"
            self.step()
            self.scheduler.let_time_pass()
            time.sleep(0.001)

    def run(self):
        self.rest()

    def end(self):
        self.worker.chunks.view.release()
        self.scheduler.shutdown()


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

"""The disk tier below vLLM's own CPU tier and tiering manager, with real files: what is loaded, and for whom."""

import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager, TieringOffloadingManager

from tenantzone_runtime.engine.tiers.disk_tier import ZoneDiskTier
from tenantzone_runtime.zones.tiers.tier import TransferBounds
from tests.disk.disks import CHUNK, Disk, content
from tests.zones.core import declare

HIT, MISS, PENDING = LookupResult.HIT, LookupResult.MISS, LookupResult.HIT_PENDING
NUMBERS = count()
ROWS = 4


class Region:
    """The memory of vLLM's CPU tier."""

    def __init__(self):
        self.memory = np.zeros((ROWS, CHUNK), dtype=np.uint8)

    def create_kv_memoryview(self):
        return memoryview(self.memory)

    def cleanup(self):
        pass


class Engine:
    """vLLM's tiering manager over a CPU tier of 4 chunks and a disk."""

    def __init__(self, folder, **options):
        self.disk = Disk(folder, **options)
        self.region = Region()
        primary = CPUPrimaryTierOffloadingManager(ROWS, self.region)
        self.tier = ZoneDiskTier(SimpleNamespace(), primary.get_kv_memoryview(), "disk", self.disk.tier)
        self.manager = TieringOffloadingManager(primary, [self.tier])

    def request(self, tenant):
        context = ReqContext(f"request-{next(NUMBERS)}")
        self.tier.bind(context.req_id, tenant)
        self.manager.on_new_request(context)
        return context

    def step(self):
        self.manager.on_schedule_end(ScheduleEndContext((), ()))
        list(self.tier.upkeep())

    def store(self, context, keys):
        output = self.manager.prepare_store(keys, context)
        for key, chunk_id in zip(output.keys_to_store, output.store_spec.chunk_ids, strict=True):
            self.region.memory[chunk_id] = np.frombuffer(content(key), dtype=np.uint8)
        self.manager.complete_store(output.keys_to_store, context)
        self.rest()

    def load(self, context, key):
        """Returns the content in the CPU tier after a lookup; None: a miss."""
        until = time.monotonic() + 20
        while (result := self.manager.lookup(key, context)) is not HIT:
            if result is MISS:
                return None
            assert time.monotonic() < until
            self.step()
        (chunk_id,) = self.manager.prepare_load([key], context).chunk_ids
        self.manager.complete_load([key], context)
        return bytes(self.region.memory[chunk_id])

    def rest(self):
        until = time.monotonic() + 20
        # Work promised in a step begins at its end.
        self.step()
        while self.manager.has_pending_work():
            assert time.monotonic() < until
            self.step()

    def forget_memory(self):
        self.manager.reset_cache()
        if hasattr(self.manager, "on_reset_flushed"):
            # Since 0.33, nothing is loaded until the workers have finished all earlier copies.
            self.manager.on_reset_flushed()
        self.region.memory[:] = 0

    def end(self):
        self.manager.shutdown()
        self.disk.files.unlock()


@pytest.fixture
def engine(tmp_path):
    engines = []

    def make(**options):
        engines.append(Engine(tmp_path / "tier", **options))
        return engines[-1]

    yield make
    for made in engines:
        made.end()


def prompt(name, length):
    return [make_offload_key(f"{name}-{number}".encode() * 4, 0) for number in range(length)]


def test_what_left_the_memory_comes_back_from_the_disk_and_to_its_tenant_only(engine):
    vllm = engine(acme={}, late={})
    keys = prompt("a", 3)
    vllm.store(vllm.request("acme"), keys)
    vllm.forget_memory()
    late, acme = vllm.request("late"), vllm.request("acme")
    assert vllm.load(late, keys[0]) is None, "even with the same hash"
    assert [vllm.load(acme, key) for key in keys] == [content(key) for key in keys]


def test_more_than_the_memory_holds_is_found(engine):
    vllm = engine(acme={}, chunks=20)
    for number in range(5):
        vllm.store(vllm.request("acme"), prompt(f"p{number}", 3))
    returning = vllm.request("acme")
    for key in prompt("p0", 3):
        assert vllm.load(returning, key) == content(key)
    assert vllm.tier.figures().zones["acme"].counts.read >= 3


@pytest.mark.parametrize("tenant", [None, "unknown"])
def test_who_has_no_zone_stores_and_finds_nothing(engine, tenant):
    vllm = engine(acme={})
    keys = prompt("a", 2)
    vllm.store(vllm.request(tenant), keys)
    vllm.forget_memory()
    assert vllm.load(vllm.request("acme"), keys[0]) is None
    assert vllm.load(vllm.request(tenant), keys[0]) is None
    assert not vllm.disk.paths()


def test_a_corrupt_chunk_is_a_miss_and_its_neighbours_load(engine):
    vllm = engine(acme={})
    keys = prompt("a", 2)
    vllm.store(vllm.request("acme"), keys)
    vllm.disk.paths()[keys[0]].write_bytes(b"x" * vllm.disk.paths()[keys[0]].stat().st_size)
    vllm.forget_memory()
    acme = vllm.request("acme")
    for key in keys:
        assert vllm.manager.lookup(key, acme) is PENDING
    vllm.rest()
    assert vllm.load(acme, keys[0]) is None
    assert vllm.load(acme, keys[1]) == content(keys[1])


def test_a_slow_disk_costs_a_hit_and_no_step(engine):
    vllm = engine(acme={}, seconds=0.05)
    keys = prompt("a", 1)
    vllm.store(vllm.request("acme"), keys)
    vllm.forget_memory()
    held = vllm.disk.files.hold("read")
    assert vllm.load(vllm.request("acme"), keys[0]) is None
    vllm.rest()
    held.set()
    vllm.disk.rest()
    assert not vllm.region.memory.any(), "what comes late is written nowhere"


def test_a_reset_waits_for_no_disk(engine):
    vllm = engine(acme={})
    acme = vllm.request("acme")
    held = vllm.disk.files.hold("write")
    output = vllm.manager.prepare_store(prompt("a", 2), acme)
    vllm.manager.complete_store(output.keys_to_store, acme)
    began = time.monotonic()
    vllm.manager.reset_cache()
    assert time.monotonic() - began < 5, "the disk takes twenty seconds"
    held.set()


def test_a_zone_loads_no_more_at_once_than_it_may(engine):
    vllm = engine(acme={}, bounds=TransferBounds(stores=10, loads=2))
    keys = prompt("a", 4)
    vllm.store(vllm.request("acme"), keys)
    vllm.forget_memory()
    acme = vllm.request("acme")
    assert [vllm.manager.lookup(key, acme) for key in keys] == [PENDING, PENDING, MISS, MISS]
    vllm.rest()
    assert vllm.manager.lookup(keys[0], acme) is HIT


def test_a_purge_and_a_zone_that_goes_leave_nothing(engine):
    vllm = engine(acme={}, late={})
    keys = prompt("a", 2)
    acme = vllm.request("acme")
    vllm.store(acme, keys)
    vllm.disk.declare(declare("acme", purge="p1"), declare("late"))
    vllm.forget_memory()
    assert vllm.load(vllm.request("acme"), keys[0]) is None
    receipts = []
    vllm.disk.wait(lambda: receipts.extend(vllm.tier.take_receipts()) or receipts)
    assert (receipts[0].tenant, receipts[0].files) == ("acme", 2)
    assert not vllm.disk.paths()


def test_the_disk_and_vllm_must_agree_on_the_length_of_a_chunk(engine):
    vllm = engine(acme={})
    other = memoryview(np.zeros((ROWS, 2 * CHUNK), dtype=np.uint8))
    with pytest.raises(ValueError, match="256 bytes, but vLLM's have 512"):
        ZoneDiskTier(SimpleNamespace(), other, "disk", vllm.disk.tier)

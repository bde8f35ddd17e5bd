"""The shared tier below vLLM's own tiering manager, with a real manager and files: what is loaded, and for whom."""

import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager, TieringOffloadingManager

from tenantzone_runtime.engine.tiers.shared_tier import ZoneSharedTier
from tests.disk.disks import CHUNK, content
from tests.shared_tier.conftest import manager  # noqa: F401 - a fixture
from tests.shared_tier.engines import ENDLESS, Engine, objects, questions, standing_still, tenant
from tests.zones.core import declare

HIT, MISS, RETRY = LookupResult.HIT, LookupResult.MISS, LookupResult.RETRY
NUMBERS = count()
ROWS = 8
TOKENS = 16


class Region:
    """The memory of vLLM's CPU tier."""

    def __init__(self):
        self.memory = np.zeros((ROWS, CHUNK), dtype=np.uint8)

    def create_kv_memoryview(self):
        return memoryview(self.memory)

    def cleanup(self):
        pass


class Vllm:
    """vLLM's tiering manager over a CPU tier of 8 chunks and shared storages."""

    def __init__(self, url, *zones, **options):
        self.engine = Engine(url, zones=zones, **options)
        self.region = Region()
        primary = CPUPrimaryTierOffloadingManager(ROWS, self.region)
        view = primary.get_kv_memoryview()
        self.tier = ZoneSharedTier(SimpleNamespace(), view, "shared", self.engine.tier)
        self.manager = TieringOffloadingManager(primary, [self.tier])

    def request(self, tenant, keys):
        context = ReqContext(f"request-{next(NUMBERS)}")
        self.tier.bind(context.req_id, tenant)
        self.manager.on_new_request(context)
        self.tier.know_prompt(context, keys)
        for index, key in enumerate(keys):
            context.set_offload_key_position(key, (index + 1) * TOKENS)
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
        until = time.monotonic() + 30
        while (result := self.manager.lookup(key, context)) is not HIT:
            if result is MISS:
                return None
            assert time.monotonic() < until
            self.step()
        (chunk_id,) = self.manager.prepare_load([key], context).chunk_ids
        self.manager.complete_load([key], context)
        return bytes(self.region.memory[chunk_id])

    def rest(self):
        until = time.monotonic() + 30
        self.step()
        while self.manager.has_pending_work() or not self.engine.tier.is_at_rest:
            assert time.monotonic() < until
            self.step()

    def forget_memory(self):
        self.manager.reset_cache()
        if hasattr(self.manager, "on_reset_flushed"):
            # Since 0.33, nothing is loaded until the workers have finished all earlier copies.
            self.manager.on_reset_flushed()

    def end(self):
        self.manager.shutdown()


@pytest.fixture
def vllm(manager):  # noqa: F811 - the fixture
    made = []

    def make(*zones, **options):
        made.append(Vllm(manager.url, *zones, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


def prompt(name, length):
    return [make_offload_key(f"{name}-{number}".encode() * 4, 0) for number in range(length)]


def test_what_one_engine_stored_another_loads_for_its_tenant_only(vllm):
    acme, burst, keys = tenant(), tenant(), prompt("a", 4)
    first, second = (vllm(declare(acme), declare(burst)) for _ in range(2))
    first.store(first.request(acme, keys), keys)
    mine, other = second.request(acme, keys), second.request(burst, keys)
    assert second.load(other, keys[0]) is None, "even with the same hash"
    assert [second.load(mine, key) for key in keys] == [content(key) for key in keys]


def test_a_request_waits_for_the_answer_and_asks_once(vllm, manager):  # noqa: F811 - the fixture
    acme, keys = tenant(), prompt("a", 4)
    engine = vllm(declare(acme))
    engine.store(engine.request(acme, keys), keys)
    engine.forget_memory()
    asked, request = questions(manager), engine.request(acme, keys)
    manager.pause()
    assert [engine.manager.lookup(key, request) for key in keys] == [RETRY] * 4
    assert engine.tier.is_waiting(request)
    manager.resume()
    assert [engine.load(request, key) for key in keys] == [content(key) for key in keys]
    assert not engine.tier.is_waiting(request)
    assert questions(manager) == asked + 1


@pytest.mark.parametrize("known", [False, True])
def test_who_has_no_zone_stores_and_finds_nothing(vllm, known):
    acme, keys = tenant(), prompt("a", 2)
    engine = vllm(declare(acme))
    stranger = tenant() if known else None
    engine.store(engine.request(stranger, keys), keys)
    engine.forget_memory()
    assert engine.load(engine.request(acme, keys), keys[0]) is None
    assert engine.load(engine.request(stranger, keys), keys[0]) is None


def test_what_may_be_wrong_is_never_kept(vllm):
    acme, keys = tenant(), prompt("a", 3)
    engine = vllm(declare(acme))
    request = engine.request(acme, keys)
    engine.store(request, keys)
    engine.tier.condemn(request, keys)
    engine.forget_memory()
    engine.engine.wait(lambda: engine.engine.found(acme, keys) == 0)


def test_a_reset_waits_for_no_manager(vllm, manager):  # noqa: F811 - the fixture
    acme, keys = tenant(), prompt("a", 2)
    engine = vllm(declare(acme), settings=ENDLESS)
    request = engine.request(acme, keys)
    with standing_still(manager):
        output = engine.manager.prepare_store(keys, request)
        engine.manager.complete_store(output.keys_to_store, request)
        engine.forget_memory()


def test_a_beginning_that_only_memory_has_is_stored_with_what_follows(vllm):
    acme, keys = tenant(), prompt("a", 5)
    engine, other = vllm(declare(acme)), vllm(declare(acme))
    first = engine.request(acme, keys[:3])
    engine.tier.shared.zones[acme].space.close(3600)
    engine.store(first, keys[:3])
    engine.tier.shared.zones[acme].space.closed_until = 0.0
    assert other.load(other.request(acme, keys), keys[0]) is None
    engine.store(engine.request(acme, keys), keys)
    returning = other.request(acme, keys)
    assert [other.load(returning, key) for key in keys] == [content(key) for key in keys]


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_what_can_not_be_loaded_is_computed_at_once(vllm, manager, damage):  # noqa: F811 - the fixture
    acme, keys = tenant(), prompt("a", 3)
    engine = vllm(declare(acme))
    engine.store(engine.request(acme, keys), keys)
    engine.forget_memory()
    (path,) = [path for path in objects(manager, acme) if path.name.startswith(keys[1].hex())]
    path.unlink() if damage is None else path.write_bytes(damage)
    request = engine.request(acme, keys)
    assert [engine.load(request, key) for key in keys[:2]] == [content(keys[0]), None]
    counts = engine.engine.counts(acme)
    assert counts.corrupt + counts.vanished == 1, "it is tried once"


@pytest.mark.parametrize("lease", [0.0, 1e-9, -1.0])
def test_a_lease_that_is_over_at_once_is_a_miss(vllm, lease):
    acme, keys = tenant(), prompt("a", 2)
    engine = vllm(declare(acme))
    engine.store(engine.request(acme, keys), keys)
    engine.forget_memory()
    client = engine.engine.tier._client
    ask = client.get_cache_location
    client.get_cache_location = lambda *about: structs.replace(ask(*about), lease_seconds=lease)
    assert engine.load(engine.request(acme, keys), keys[0]) is None
    assert engine.engine.tier.figures().questions["answered"] <= 3

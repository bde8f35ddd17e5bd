"""Two of vLLM's real schedulers over one manager and its files: what is found, who waits, and for how long."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config
from tenantzone_runtime.engine.shared_tier import ZoneSharedTier
from tenantzone_runtime.shared.opening import open_shared_tier
from tenantzone_runtime.shared.writing import Shape
from tests.disk.disks import SALT_KEY, instance
from tests.engine.tier_worker import CHUNK_BYTES, FOREIGN, TierWorker, with_tiers
from tests.shared_tier.conftest import own_manager  # noqa: F401 - a fixture
from tests.shared_tier.engines import ENDLESS, HANG, PATIENT, standing_still
from tests.zones.core import declare


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


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


@pytest.fixture
def manager(own_manager):  # noqa: F811 - the fixture
    own_manager.share({"name": "test.pool", "pools": ["ml/chat"]})
    return own_manager


@pytest.fixture
def engines(config, manager):
    made = []

    def make(count=2, **options):
        made.extend(SharingEngine(config, manager.url, **options) for _ in range(count))
        for each in made:
            each.declare(declare("acme"), declare("burst"))
        return made

    yield make
    for each in made:
        each.end()


def test_a_prompt_that_one_engine_computed_another_one_loads(engines):
    first, second = engines()
    tokens = prompt(12)
    first.ask("acme", tokens)
    second.ask("acme", tokens)
    assert second.worker.loaded >= 11, "its last token is computed"
    loaded = second.worker.loaded
    second.ask("burst", tokens)
    assert second.worker.loaded == loaded


def test_who_waits_for_an_answer_holds_up_nobody(engines, manager):
    (engine,) = engines(1)
    manager.pause()
    waiting = engine.send("acme", prompt(6))
    others = [engine.send("acme", [7] * 3), engine.send("burst", [8] * 3)]
    until = time.monotonic() + HANG
    while any(each.request_id in engine.scheduler.requests for each in others):
        assert time.monotonic() < until
        engine.step()
    assert waiting.request_id in engine.scheduler.requests, "its question has twenty seconds"
    assert engine.scheduler.tiers.is_looking_up(waiting), "whoever plans a step passes over it"
    manager.resume()
    engine.rest()


def test_after_its_budget_a_request_is_computed(engines, manager):
    (engine,) = engines(1, settings=replace(ENDLESS, query_seconds=0.05))
    with standing_still(manager):
        request = engine.send("acme", prompt(6))
        while request.request_id in engine.scheduler.requests:
            engine.step()
            engine.scheduler.let_time_pass()
        assert engine.worker.loaded == 0
        assert engine.shared.figures().questions == {"late": 1}
    engine.rest()


def test_a_conversation_that_began_without_the_manager_is_stored_when_it_goes_on(engines, manager):
    first, second = engines()
    manager.kill()
    begun = prompt(6)
    first.ask("acme", begun)
    manager.start()
    until = time.monotonic() + HANG
    while first.shared.problem:
        assert time.monotonic() < until
        first.scheduler.let_time_pass()
        time.sleep(0.01)
    longer = [*begun, *prompt(4)]
    first.ask("acme", longer)
    second.ask("acme", longer)
    assert second.worker.loaded >= 9


def test_what_a_purge_names_is_loaded_by_nobody(engines):
    first, second = engines()
    tokens = prompt(6)
    first.ask("acme", tokens)
    for each in (first, second):
        each.declare(declare("acme", purge="once"), declare("burst"))
    second.ask("acme", tokens)
    assert second.worker.loaded == 0

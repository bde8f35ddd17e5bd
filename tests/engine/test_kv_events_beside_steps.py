"""vLLM's own publisher of KV events: losses of zones outside of steps are published without a step, and in order."""

import itertools
import random
import threading
from collections import Counter, deque

import msgspec
import pytest
import zmq
from vllm.config import KVEventsConfig
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch
from vllm.v1.core.kv_cache_utils import get_block_hash, maybe_convert_block_hash

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.zone_terms import Idle
from tests.engine.measured import zone

CAPACITY = 100
DEADLINE_MILLISECONDS = 60_000
GONE_AT_ONCE = Idle(after_seconds=0, evict_after_seconds=0)
_numbers = itertools.count()


class Published:
    """All events so far, as vLLM's publisher sends them to a subscriber that has missed some."""

    def __init__(self, endpoint, publisher):
        self._publisher = publisher
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.connect(endpoint)
        self._decoder = msgspec.msgpack.Decoder(type=KVEventBatch)

    def close(self):
        self._socket.close(linger=0)

    def batches(self):
        # Wait until the publisher's thread has handled its queue.
        self._publisher._event_queue.join()
        self._socket.send_multipart((b"", (0).to_bytes(8, "big")))
        found = []
        while True:
            assert self._socket.poll(DEADLINE_MILLISECONDS)
            _, _, number, payload = self._socket.recv_multipart()
            if number == self._publisher.END_SEQ:
                return found
            assert int.from_bytes(number, "big") == len(found)
            found.append(self._decoder.decode(payload).events)

    def blocks(self):
        """Hashes of the existing blocks, for a subscriber that has followed all events."""
        there = set()
        for event in itertools.chain.from_iterable(self.batches()):
            if isinstance(event, BlockStored):
                there.update(event.block_hashes)
            elif isinstance(event, BlockRemoved):
                assert there.issuperset(event.block_hashes), "removed before it was stored, or twice"
                there.difference_update(event.block_hashes)
            else:
                there.clear()
        return there


@pytest.fixture
def driver(tmp_path):
    config = vllm_config(tmp_path, max_batched_tokens=512)
    number = next(_numbers)
    config.kv_events_config = KVEventsConfig(
        enable_kv_cache_events=True, endpoint=f"inproc://events-{number}", replay_endpoint=f"inproc://missed-{number}"
    )
    driver = Driver(make_scheduler(config, CAPACITY))
    yield driver
    driver.scheduler.shutdown()


@pytest.fixture
def published(driver):
    publisher = driver.scheduler.kv_event_publisher
    published = Published(publisher._replay_endpoint, publisher)
    yield published
    published.close()


def cached(driver):
    """Hashes of the cached blocks."""
    hashes = (block.block_hash for block in driver.scheduler.block_pool.blocks if block.block_hash is not None)
    return {maybe_convert_block_hash(get_block_hash(each)) for each in hashes}


@pytest.mark.shows("KV events")
def test_what_time_takes_from_zones_of_an_idle_engine_is_published(driver, published):
    driver.declare(zone("acme", idle=GONE_AT_ONCE), zone("burst"))
    driver.ask("acme", prompt(20))
    driver.ask("burst", prompt(5))
    assert len(published.blocks()) == 25
    driver.scheduler.let_time_pass()
    assert driver.zone("acme").held == 0
    assert published.blocks() == cached(driver)
    assert len(published.blocks()) == 5


def test_what_a_config_takes_from_zones_of_an_idle_engine_is_published(driver, published):
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(20))
    driver.declare(zone("acme", limit=15))
    driver.scheduler.let_time_pass()
    assert published.blocks() == cached(driver)
    driver.declare()
    driver.scheduler.let_time_pass()
    assert published.blocks() == set()


def test_a_reset_of_an_idle_engines_cache_is_published(driver, published):
    driver.ask(None, prompt(20))
    driver.scheduler.reset_prefix_cache()
    driver.scheduler.let_time_pass()
    assert published.batches()[-1] == [AllBlocksCleared()]


def test_nothing_is_published_where_nothing_has_happened(driver, published):
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(20))
    before = published.batches()
    driver.scheduler.let_time_pass()
    assert published.batches() == before


def test_what_a_step_in_flight_computes_is_not_published_before_it_is_computed(driver, published):
    driver.declare(zone("acme"), zone("burst", idle=GONE_AT_ONCE))
    driver.ask("burst", prompt(3))
    (stored,) = published.batches()
    driver.send("acme", prompt(5), max_tokens=9)
    steps = deque([driver.schedule()])
    driver.scheduler.let_time_pass()
    assert driver.zone("burst").held == 0
    steps.append(driver.schedule())
    assert published.batches() == [stored]
    driver.update(*steps.popleft())
    driver.scheduler.let_time_pass()
    assert published.blocks() == cached(driver)
    first, second = published.batches()
    assert first == stored
    assert [type(event) for event in second] == [BlockStored, *[BlockRemoved] * 3]
    driver.update(*steps.popleft())


def test_a_follower_of_the_events_knows_the_blocks_whatever_happens_between_steps(driver, published):
    draw = random.Random(7)
    driver.declare(*(zone(f"tenant-{number}", idle=GONE_AT_ONCE) for number in range(5)))
    is_over = threading.Event()

    def keep_house():
        while not is_over.is_set():
            driver.scheduler.let_time_pass()

    housekeeper = threading.Thread(target=keep_house, daemon=True)
    housekeeper.start()
    steps = deque()
    try:
        for _ in range(400):
            if draw.random() < 0.3:
                driver.send(f"tenant-{draw.randrange(5)}", prompt(draw.randrange(12)), max_tokens=draw.randrange(1, 20))
            if driver.scheduler.has_requests():
                steps.append(driver.schedule())
            if len(steps) == 2 or (steps and not driver.scheduler.has_requests()):
                driver.update(*steps.popleft())
        while steps:
            driver.update(*steps.popleft())
        driver.run()
    finally:
        is_over.set()
        housekeeper.join()
    assert published.blocks() == cached(driver)
    driver.scheduler.let_time_pass()
    assert published.blocks() == set()


def test_what_a_waiting_request_would_find_is_reported_when_it_is_admitted(driver, published):
    """A request may ask for its hits to be reported, too; it is looked at more often than admitted."""
    driver.declare(zone("acme"), zone("burst"))
    driver.ask("acme", prompt(10, seed=1))
    driver.send("burst", prompt(80), max_tokens=40)
    for _ in range(3):
        driver.step()
    waiting = driver.send("acme", prompt(30, seed=1))
    waiting.kv_cache_report_mode = "full"
    events = list(itertools.chain.from_iterable(published.batches()))
    prefix = next(event for event in events if isinstance(event, BlockStored)).block_hashes
    assert len(prefix) == 10
    while not waiting.num_computed_tokens:
        driver.step()
    later = list(itertools.chain.from_iterable(published.batches()))[len(events) :]
    reported = Counter(block for event in later if isinstance(event, BlockStored) for block in event.block_hashes)
    assert {reported[block] for block in prefix} == {1}

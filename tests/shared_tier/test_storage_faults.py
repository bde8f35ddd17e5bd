"""A storage that is slow, gone or fails costs hits, is left alone for a while, and delays no request."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.storage.storages import FileStorages
from tests.shared_tier.engines import (
    HANG,
    NUMBERS,
    PATIENT,
    calls,
    contents,
    engines_of,
    objects,
    prompt,
    standing_still,
)

LATE = replace(PATIENT, load_seconds=0.3)
"""For tests in which a load never ends in time."""
KEYS = prompt("a", 4)


class HeldStorages(FileStorages):
    """Files that wait, or fail, on request: all, or those in one folder."""

    def __init__(self, folder="/"):
        self.folder = folder
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.error = None
        self.reads = self.writes = 0
        self._begun = threading.Semaphore(0)

    def write(self, place, content):
        if self.folder in str(place.path):
            self.writes += 1
            self._wait()
        super().write(place, content)

    def read(self, place, content):
        if self.folder in str(place.path):
            self.reads += 1
            self._begun.release()
            self._wait()
        return super().read(place, content)

    def await_reads(self, count):
        """Waits until `count` reads have begun; none counts as late meanwhile, because no one checks the time."""
        for _ in range(count):
            assert self._begun.acquire(timeout=HANG)

    def _wait(self):
        self.goes_on.wait(HANG)
        if self.error is not None:
            raise self.error


@pytest.fixture
def engine(shared):
    with engines_of(shared.url, "acme") as make:
        yield make


def test_a_storage_that_is_slow_costs_hits_and_touches_no_memory_after_that(engine):
    storages = HeldStorages()
    mine = engine(settings=LATE, storages=storages)
    assert mine.store("acme", KEYS) == KEYS
    storages.goes_on.clear()
    assert mine.load("acme", KEYS) == []
    assert mine.counts("acme").late == 4
    storages.goes_on.set()
    mine.wait(lambda: mine.tier.is_at_rest)
    assert mine.counts("acme").read == 0


def test_no_call_waits_twice_for_a_storage_that_hangs(engine):
    storages = HeldStorages()
    mine = engine(settings=LATE, storages=storages)
    assert mine.store("acme", KEYS) == KEYS
    storages.goes_on.clear()
    query = Query(KEYS)
    mine.begin_load("acme", query, mine.hits("acme", query))
    storages.await_reads(4)
    # However late they began, each has had its time at the next check.
    time.sleep(LATE.load_seconds)
    mine.wait(lambda: mine.ended)
    assert mine.hits("acme", query) == 0, "it is computed"
    assert "storage files fail: a chunk was not read within 0.3 s" in mine.tier.problem
    breaker = mine.tier._loading.breakers.of("files")
    breaker._closed_from += 3600
    assert mine.found("acme", KEYS) == 0, "others do not wait"
    breaker._closed_from -= 3600
    mine.wait(lambda: mine.found("acme", KEYS) == 4)
    storages.goes_on.set()
    mine.wait(lambda: mine.load("acme", KEYS) == contents(KEYS))


def test_chunks_without_a_waiting_request_are_not_read(engine):
    storages = HeldStorages()
    mine = engine(settings=replace(LATE, readers=1), storages=storages)
    assert mine.store("acme", KEYS) == KEYS
    storages.goes_on.clear()
    query = Query(KEYS)
    number, _ = mine.begin_load("acme", query, mine.hits("acme", query))
    storages.await_reads(1)
    assert mine.end(number).moved == []
    storages.goes_on.set()
    mine.wait(lambda: mine.tier.is_at_rest)
    assert storages.reads == 1


def test_a_storage_is_not_blamed_for_what_waited_for_others(engine):
    storages = HeldStorages()
    mine = engine(settings=replace(LATE, readers=1), storages=storages)
    assert mine.store("acme", KEYS) == KEYS
    hanging = threading.Event()

    def hang():
        yield "files"
        hanging.wait(HANG)

    mine.tier._threads.read("burst", hang(), bool)
    assert mine.load("acme", KEYS) == []
    assert mine.counts("acme").late == 4
    assert not mine.tier.problem
    hanging.set()


def test_a_storage_that_fails_is_left_alone(engine):
    storages = HeldStorages()
    mine = engine(storages=storages)
    mine.store("acme", KEYS)
    storages.error = OSError(5, "broken")
    for _ in range(3):
        mine.load("acme", KEYS)
    assert mine.counts("acme").read_failures == 8, "after five failures nothing is read, but for what had begun"
    assert "reads of storage files fail" in mine.tier.problem
    storages.error = None
    mine.wait(lambda: mine.load("acme", KEYS) == contents(KEYS))
    mine.wait(lambda: not mine.tier.problem)


def fail_to_write(engine, count):
    """Makes `count` writes fail, each of a prompt of its own."""
    for _ in range(count):
        assert engine.store("acme", prompt(f"failed-{next(NUMBERS)}", 1)) == []


def test_what_is_refused_says_nothing_of_its_storage(engine):
    storages = HeldStorages()
    mine = engine(storages=storages)
    storages.error = OSError(28, "no space left")
    fail_to_write(mine, 5)
    mine.tier._storing.breakers.of("files")._closed_from += 3600
    fail_to_write(mine, 5)
    assert storages.writes == 5, "it is left alone, however many are refused for that"
    assert mine.counts("acme").refused_writes == {"closed": 5}


def test_what_is_given_up_before_it_is_written_says_nothing_of_its_storage(engine, shared):
    storages = HeldStorages()
    mine = engine(storages=storages)
    storages.error = OSError(28, "no space left")
    fail_to_write(mine, 4)
    with standing_still(shared):
        number = mine.begin_store("acme", Query(KEYS))
        mine.tier.give_up_jobs()
        mine.end(number)
    mine.wait(lambda: mine.tier.is_at_rest)
    assert storages.writes == 4
    fail_to_write(mine, 1)
    assert "writes of storage files fail" in mine.tier.problem, "five failed in a row"


def test_what_could_not_be_written_is_never_found(engine, shared):
    storages = HeldStorages()
    mine = engine(storages=storages)
    storages.error = OSError(28, "no space left")
    assert mine.store("acme", KEYS) == []
    assert mine.counts("acme").write_failures == 1, "what follows it is not tried"
    assert mine.counts("acme").refused_writes == {"closed": 3}, "and that is counted"
    storages.error = None
    assert mine.found("acme", KEYS) == 0
    assert mine.store("acme", KEYS) == KEYS


def test_what_was_given_up_is_not_counted_as_refused_too(engine):
    storages = HeldStorages()
    mine = engine(storages=storages, settings=replace(PATIENT, store_seconds=0.3))
    storages.goes_on.clear()
    assert mine.store("acme", KEYS) == []
    storages.goes_on.set()
    mine.wait(lambda: mine.tier.is_at_rest)
    counts = mine.counts("acme")
    assert (counts.late, counts.refused_writes) == (4, {})


def test_what_is_gone_of_a_prompt_is_reported_at_once(engine, shared):
    """The tenant's next query waits behind it."""
    mine = engine()
    mine.store("acme", KEYS)
    for each in objects(shared):
        each.unlink()
    query = Query(KEYS)
    hits = mine.hits("acme", query)
    has_read, read = threading.Semaphore(0), mine.tier._threads._events.put

    def put(event):
        read(event)
        has_read.release()

    mine.tier._threads._events = SimpleNamespace(put=put, get_nowait=mine.tier._threads._events.get_nowait)
    number, _ = mine.begin_load("acme", query, hits)
    for _ in range(hits):
        assert has_read.acquire(timeout=HANG)
    mine.end(number)
    mine.wait(lambda: mine.found("acme", KEYS) == 0)
    assert mine.counts("acme").vanished == 4
    assert calls(shared, "RemoveCache") == 1


def test_a_storage_that_fails_without_a_word_is_left_alone(engine):
    storages = HeldStorages()
    mine = engine(storages=storages)
    mine.store("acme", KEYS)
    storages.error = TimeoutError()
    for _ in range(2):
        mine.load("acme", KEYS)
    assert "reads of storage files fail: TimeoutError" in mine.tier.problem


def fail(engine, storage="files", seconds=0.0):
    """Makes a storage be left alone, and tried again after that."""
    engine.tier._loading.breakers.note(storage, "down", at_once=True)
    engine.tier._loading.breakers.of(storage)._closed_from = time.monotonic() + seconds


def test_who_only_asks_what_there_is_does_not_try_it(engine):
    mine = engine()
    mine.store("acme", KEYS)
    fail(mine)
    assert [mine.found("acme", KEYS) for _ in range(2)] == [4, 4]
    assert mine.load("acme", KEYS) == contents(KEYS)
    assert not mine.tier.problem


def test_of_two_that_learned_of_it_in_one_step_one_tries_it(engine):
    storages = HeldStorages()
    mine = engine(storages=storages)
    mine.store("acme", KEYS)
    fail(mine)
    first, second = Query(KEYS), Query(KEYS)
    assert [mine.hits("acme", query) for query in (first, second)] == [4, 4]
    storages.goes_on.clear()
    (one, _), (other, _) = (mine.begin_load("acme", query, 4) for query in (first, second))
    assert mine.end(other).moved == []
    storages.goes_on.set()
    assert len(mine.end(one).moved) == 4
    assert storages.reads == 4


def test_a_storage_that_answers_that_a_chunk_is_gone_is_well(engine, shared):
    mine = engine()
    mine.store("acme", KEYS)
    for each in objects(shared):
        each.unlink()
    fail(mine)
    assert mine.load("acme", KEYS) == []
    assert not mine.tier.problem


def test_what_is_late_takes_none_of_what_a_zone_may_load_and_store(engine):
    storages = HeldStorages()
    mine = engine(storages=storages, settings=replace(LATE, store_seconds=3.0, chunks_at_once=4))
    assert mine.store("acme", KEYS) == KEYS
    storages.goes_on.clear()
    assert mine.load("acme", KEYS) == []
    assert mine.store("acme", prompt("b", 4)) == []
    zone = mine.tier.zones["acme"]
    assert (zone.loading, zone.storing) == (0, 0)
    storages.goes_on.set()
    mine.wait(lambda: mine.tier.is_at_rest)
    assert (zone.loading, zone.storing) == (0, 0)


def test_a_storage_that_hangs_in_writes_is_left_alone(engine):
    storages = HeldStorages()
    mine = engine(storages=storages, settings=replace(PATIENT, store_seconds=0.3))
    storages.goes_on.clear()
    number = mine.begin_store("acme", Query(KEYS))
    until = time.monotonic() + HANG
    while not storages.writes:
        assert time.monotonic() < until, "nothing is written"
        time.sleep(0.001)
    # However late it began, it has had its time at the next check.
    time.sleep(0.3)
    assert mine.end(number).moved == []
    assert "writes of storage files fail: a chunk was not written within 0.3 s" in mine.tier.problem
    storages.goes_on.set()
    mine.wait(lambda: mine.tier.is_at_rest)


def test_a_storage_that_hangs_is_noticed_though_no_call_waits_for_it_any_more(engine):
    """As when the engine is reset, or it began to hang just before a job was given up."""
    storages = HeldStorages()
    mine = engine(storages=storages, settings=replace(LATE, store_seconds=0.3))
    assert mine.store("acme", KEYS) == KEYS
    storages.goes_on.clear()
    query = Query(KEYS)
    mine.begin_load("acme", query, mine.hits("acme", query))
    mine.begin_store("acme", Query(prompt("b", 4)))
    storages.await_reads(4)
    until = time.monotonic() + HANG
    while storages.writes < 5:
        assert time.monotonic() < until, "nothing is written"
        time.sleep(0.001)
    mine.tier.give_up_jobs()
    zone = mine.tier.zones["acme"]
    assert (zone.loading, zone.storing) == (0, 0)
    mine.wait(lambda: "a chunk was not read within 0.3 s" in mine.tier.problem)
    mine.wait(lambda: "a chunk was not written within 0.3 s" in mine.tier.problem)
    storages.goes_on.set()
    mine.wait(lambda: mine.tier.is_at_rest)
    mine.wait(lambda: mine.load("acme", KEYS) == contents(KEYS))


def test_a_removal_that_takes_long_makes_no_question_late(engine):
    mine = engine(settings=replace(PATIENT, query_seconds=1.0))
    mine.store("acme", KEYS)
    goes_on = threading.Event()
    mine.tier._client.remove_cache = lambda *_: goes_on.wait(HANG)
    mine.tier.lose("acme", prompt("b", 1))
    assert mine.found("acme", KEYS) == 4
    assert mine.tier.figures().questions == {"answered": 1}
    goes_on.set()


def test_what_is_known_to_be_gone_is_reported_before_the_next_question(engine, shared):
    mine = engine()
    mine.store("acme", KEYS)
    query, other, third = Query(KEYS), Query(prompt("b", 2)), Query(KEYS)
    hits = mine.hits("acme", query)
    for each in objects(shared):
        each.unlink()
    mine.tier.find("acme", other, other.keys[0])
    mine.begin_load("acme", query, hits)
    # One request's look-ups register it.
    until = time.monotonic() + HANG
    while mine.counts("acme").vanished < 4:
        assert time.monotonic() < until, "it is not read"
        other.is_pending = True
        mine.tier.is_waiting(other)
    assert mine.hits("acme", third) == 0


def test_a_folder_that_is_not_mounted_is_reported(engine, shared, tmp_path):
    mine = engine()
    mine.store("acme", KEYS)
    shared.storage.rename(tmp_path / "elsewhere")
    assert mine.load("acme", KEYS) == []
    assert mine.counts("acme").read_failures == 4, "no chunk is taken for lost"
    (tmp_path / "elsewhere").rename(shared.storage)
    mine.wait(lambda: mine.load("acme", KEYS) == contents(KEYS))

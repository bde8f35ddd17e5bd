"""A manager or a storage that is slow, gone or wrong costs hits, and holds up nobody."""

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tenantzone_runtime.shared.answers import CacheLocations
from tenantzone_runtime.shared.queries import Finding, Query
from tenantzone_runtime.shared.storages import FileStorages
from tests.shared_tier.engines import (
    ENDLESS,
    HANG,
    NUMBERS,
    OBJECT,
    PATIENT,
    Engine,
    calls,
    contents,
    group,
    objects,
    prompt,
    standing_still,
)
from tests.zones.core import declare

BUDGET = replace(PATIENT, query_seconds=0.05)
"""Of tests in which a question is never answered in time."""
LATE = replace(PATIENT, load_seconds=0.3)
"""Of tests in which a load never ends in time."""
KEYS = prompt("a", 4)


class HeldStorages(FileStorages):
    """Files that wait, or fail, when they are told to."""

    def __init__(self):
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.error = None
        self.reads = self.writes = 0
        self._begun = threading.Semaphore(0)

    def write(self, place, content):
        self.writes += 1
        self._wait()
        super().write(place, content)

    def read(self, place, content):
        self.reads += 1
        self._begun.release()
        self._wait()
        return super().read(place, content)

    def await_reads(self, count):
        """Until so many have begun; meanwhile nobody is late, as nobody looks at the time."""
        for _ in range(count):
            assert self._begun.acquire(timeout=HANG)

    def _wait(self):
        self.goes_on.wait(HANG)
        if self.error is not None:
            raise self.error


@pytest.fixture
def shared(own_manager):
    own_manager.share(group("chat"))
    return own_manager


@pytest.fixture
def engine(shared):
    made = []

    def make(**options):
        made.append(Engine(shared.url, "acme", **options))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_a_manager_that_is_killed_costs_hits_until_it_is_back(engine, shared):
    mine = engine()
    mine.store("acme", KEYS)
    shared.kill()
    for _ in range(20):
        assert mine.found("acme", KEYS) == 0
    questions = mine.tier.figures().questions
    assert questions["failed"] <= 5, "after five failures it is asked no more; other calls may have had some of them"
    assert questions["failed"] + questions["skipped"] == 20
    assert mine.store("acme", KEYS) == []
    assert mine.counts("acme").refused_writes == {"closed": 4}
    assert "does not answer" in mine.tier.problem
    shared.start()
    mine.wait(lambda: not mine.tier.problem)
    assert mine.load("acme", KEYS) == contents(KEYS)


def test_a_manager_that_stands_still_is_waited_for_as_long_as_the_budget(engine, shared):
    mine, patient = engine(settings=BUDGET), engine()
    patient.store("acme", KEYS)
    query = Query(KEYS)
    with standing_still(shared):
        assert mine.hits("acme", query) == 0
        assert query.deadline - query.asked == pytest.approx(0.05)
        assert mine.tier.figures().questions == {"late": 1}
        assert mine.tier.find("acme", query, KEYS[0]) is Finding.MISS, "it is not asked again"
    mine.wait(lambda: mine.found("acme", KEYS) == 4)


def test_no_call_waits_for_the_manager(engine, shared):
    mine = engine(settings=ENDLESS)
    mine.store("acme", KEYS)
    with standing_still(shared):
        for number in range(100):
            mine.tier.find("acme", Query(KEYS), KEYS[0])
            mine.begin_store("acme", Query(prompt(str(number), 4)))
            mine.tier.upkeep()
        mine.tier.give_up_jobs()


def hold_askers(engine):
    """Have each thread that asks wait; returns what lets them go on."""
    goes_on, held = threading.Event(), threading.Semaphore(0)

    def hold():
        held.release()
        goes_on.wait(HANG)

    for _ in range(PATIENT.askers):
        engine.tier._threads.ask("held", hold, bool)
    for _ in range(PATIENT.askers):
        assert held.acquire(timeout=HANG)
    return goes_on


def test_questions_that_no_thread_is_free_to_ask_are_waited_for_no_more_after_some(engine):
    mine = engine(settings=BUDGET)
    goes_on = hold_askers(mine)
    for _ in range(20):
        assert mine.found("acme", KEYS) == 0
    questions = mine.tier.figures().questions
    assert (questions["late"], questions["skipped"]) == (5, 15)
    assert "did not answer a question in time" in mine.tier.problem
    goes_on.set()
    mine.wait(lambda: not mine.tier.problem)


def test_an_answer_that_nobody_waited_for_makes_no_manager_well(engine, monkeypatch):
    mine = engine(settings=BUDGET)
    asking, goes_on, noted = mine.tier._asking, threading.Event(), []
    answered = asking._answered

    def answer(*_):
        goes_on.wait(HANG)
        return CacheLocations()

    monkeypatch.setattr(mine.tier._client, "get_cache_location", answer)
    monkeypatch.setattr(asking, "_answered", lambda *told: noted.append(answered(*told)))
    for _ in range(5):
        assert mine.found("acme", KEYS) == 0
    assert asking.breaker.is_open
    goes_on.set()
    until = time.monotonic() + HANG
    while len(noted) < 5:
        assert time.monotonic() < until
        mine.tier._threads.take_note()
    assert asking.breaker.is_open
    assert asking.counts == {"late": 5}


def test_an_answer_brings_nothing_back_that_was_given_up(engine):
    mine = engine()
    mine.store("acme", KEYS)
    goes_on = hold_askers(mine)
    query = Query(KEYS)
    assert mine.tier.find("acme", query, KEYS[0]) is Finding.WAIT
    query.give_up()
    goes_on.set()
    assert mine.hits("acme", query) == 0
    assert mine.found("acme", KEYS) == 4


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


def test_nobody_waits_twice_for_a_storage_that_hangs(engine):
    storages = HeldStorages()
    mine = engine(settings=LATE, storages=storages)
    assert mine.store("acme", KEYS) == KEYS
    storages.goes_on.clear()
    query = Query(KEYS)
    mine.begin_load("acme", query, mine.hits("acme", query))
    storages.await_reads(4)
    # However late they began, each has had its time when somebody looks.
    time.sleep(LATE.load_seconds)
    mine.wait(lambda: mine.ended)
    assert mine.hits("acme", query) == 0, "it is computed"
    assert "storage files fail: a chunk was not read within 0.3 s" in mine.tier.problem
    breaker = mine.tier._loading.breakers.of("files")
    breaker._closed_from += 3600
    assert mine.found("acme", KEYS) == 0, "others do not wait"
    breaker._closed_from -= 3600
    mine.wait(lambda: mine.found("acme", KEYS) == 1)
    storages.goes_on.set()
    mine.wait(lambda: mine.load("acme", KEYS) == contents(KEYS))


def test_what_nobody_waits_for_any_more_is_not_read(engine):
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
    mine.tier._threads.read("burst", lambda: hanging.wait(HANG), bool)
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
    """Have so many writes fail, each of a prompt of its own."""
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


def test_what_could_not_be_written_is_found_by_nobody(engine, shared):
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


def test_what_is_gone_of_a_prompt_is_told_at_once(engine, shared):
    """The tenant's next question waits behind it."""
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


def test_a_folder_that_is_not_mounted_is_told(engine, shared, tmp_path):
    mine = engine()
    mine.store("acme", KEYS)
    shared.storage.rename(tmp_path / "elsewhere")
    assert mine.load("acme", KEYS) == []
    assert mine.counts("acme").read_failures == 4, "no chunk is taken for lost"
    (tmp_path / "elsewhere").rename(shared.storage)
    mine.wait(lambda: mine.load("acme", KEYS) == contents(KEYS))


def test_an_index_that_was_lost_is_an_empty_cache(engine, shared):
    mine = engine()
    mine.store("acme", KEYS)
    shared.kill()
    for path in shared.folder.glob("index.db*"):
        path.unlink()
    shared.start()
    shared.share(group("chat"), takeover=True)
    mine.wait(lambda: mine.store("acme", KEYS) == KEYS)
    assert mine.load("acme", KEYS) == contents(KEYS)


def test_a_pool_without_a_group_is_told(own_manager):
    own_manager.share(group("other"))
    mine = Engine(own_manager.url, "acme")
    assert mine.store("acme", KEYS) == []
    assert "acme may not store: there is no instance group ml.chat" in mine.tier.problem
    own_manager.share(group("chat"))
    mine.tier.zones["acme"].space.closed_until = 0.0
    assert mine.store("acme", KEYS) == KEYS
    assert not mine.tier.problem
    mine.stop()


def test_a_token_that_is_nobodys_opens_nothing(engine):
    mine = engine(token="guessed")
    assert mine.store("acme", KEYS) == []
    assert mine.found("acme", KEYS) == 0
    assert "token" in mine.tier.problem


def test_a_token_that_no_header_can_have_is_told(engine):
    mine = engine(token="two\nlines")
    assert mine.found("acme", KEYS) == 0
    assert "can't be shown" in mine.tier.problem
    mine.token = "chat"
    mine.wait(lambda: mine.store("acme", KEYS) == KEYS)


def _answers(connection, text, _):
    connection.recv(65536)
    connection.sendall(text)


def _drips(connection, text, is_over):
    """Until it is over; returns whether it never was."""
    connection.recv(65536)
    connection.sendall(text)
    until = time.monotonic() + HANG
    while not is_over.wait(0.01):
        connection.sendall(b" ")
        if time.monotonic() > until:
            return True
    return False


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


def _elsewhere(uri):
    """An answer by which the first chunk lies there."""
    parts = [{"name": "chunk", "uri": uri, "size": OBJECT}]
    location = {"id": "x", "type": "FileSystem", "storage": "files", "specs": parts}
    body = json.dumps({"lease_seconds": 9, "blocks": [{"locations": [location]}]}).encode()
    return HEAD % (len(body), body)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (_answers, b""),
        (_answers, b"no HTTP at all\r\n\r\n"),
        (_answers, HEAD % (4, b"nope")),
        (_answers, HEAD % (13, b'{"blocks": 1}')),
        (_answers, HEAD % (99, b'{"blocks"')),
        (_answers, _elsewhere("file:///etc/passwd")),
        (_answers, _elsewhere("file://[x")),
        (_drips, b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
        (_drips, b"HTTP/1.1 200 OK\r\nX-Header:"),
    ],
)
def test_whatever_answers_in_its_place_costs_a_hit(answer, text):
    is_over, has_hung = threading.Event(), []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        has_hung.append(answer(connection, text, is_over))

        threading.Thread(target=serve, daemon=True).start()
        mine = Engine(f"http://127.0.0.1:{server.getsockname()[1]}", "acme", settings=BUDGET)
        assert mine.load("acme", KEYS) == []
        is_over.set()
        assert not any(has_hung)
        mine.stop()
        server.shutdown(socket.SHUT_RDWR)


def test_a_zone_that_goes_while_nobody_answers_is_gone_later(engine, shared):
    mine, other = engine(), engine()
    assert mine.store("acme", KEYS) == KEYS
    shared.kill()
    mine.declare(declare("burst"))
    shared.start()
    mine.wait(lambda: other.found("acme", KEYS) == 0)
    assert set(other.tier.figures().questions) == {"answered"}

"""A manager that is slow, gone or wrong costs hits, and delays no request."""

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from tenantzone_runtime.shared.manager.answers import CacheLocations
from tenantzone_runtime.shared.manager.queries import Finding, Query
from tests.shared_tier.engines import (
    ENDLESS,
    HANG,
    OBJECT,
    PATIENT,
    Engine,
    contents,
    engines_of,
    group,
    prompt,
    standing_still,
)
from tests.zones.core import declare

BUDGET = replace(PATIENT, query_seconds=0.05)
"""For tests in which a query is never answered in time."""
KEYS = prompt("a", 4)


@pytest.fixture
def engine(shared):
    with engines_of(shared.url, "acme") as make:
        yield make


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
            list(mine.tier.upkeep_in_parts())
        mine.tier.give_up_jobs()


def hold_askers(engine):
    """Makes each querying thread wait. Returns the event that lets them continue."""
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
    assert "did not answer a query in time" in mine.tier.problem
    goes_on.set()
    mine.wait(lambda: not mine.tier.problem)


def test_an_answer_without_a_waiting_caller_makes_no_manager_well(engine, monkeypatch):
    mine = engine(settings=BUDGET)
    asking, goes_on, noted = mine.tier._asking, threading.Event(), []
    answered = asking._answered

    def answer(*_):
        goes_on.wait(HANG)
        return CacheLocations()

    monkeypatch.setattr(mine.tier._client, "get_cache_location", answer)
    monkeypatch.setattr(asking, "_answered", lambda *reported: noted.append(answered(*reported)))
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


def test_a_pool_without_a_group_is_reported(own_manager):
    own_manager.share(group("other"))
    mine = Engine(own_manager.url, "acme")
    assert mine.store("acme", KEYS) == []
    assert "the manager refuses chunks of zone acme: the instance group ml.chat does not exist" in mine.tier.problem
    own_manager.share(group("chat"))
    mine.tier.zones["acme"].space.closed_until = 0.0
    assert mine.store("acme", KEYS) == KEYS
    assert not mine.tier.problem
    mine.stop()


def test_an_unknown_token_opens_nothing(engine):
    mine = engine(token="guessed")
    assert mine.store("acme", KEYS) == []
    assert mine.found("acme", KEYS) == 0
    assert "token" in mine.tier.problem


def test_a_token_that_no_header_can_have_is_reported(engine):
    mine = engine(token="two\nlines")
    assert mine.found("acme", KEYS) == 0
    assert "the token for the manager can't be sent" in mine.tier.problem
    mine.token = "chat"
    mine.wait(lambda: mine.store("acme", KEYS) == KEYS)


def _answers(connection, text, _):
    connection.recv(65536)
    connection.sendall(text)


def _drips(connection, text, is_over):
    """Sends byte by byte until it is over. Returns whether it was never over."""
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
    """An answer that gives this location for the first chunk."""
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


def test_a_zone_that_goes_while_no_answer_comes_is_gone_later(engine, shared):
    mine, other = engine(), engine()
    assert mine.store("acme", KEYS) == KEYS
    shared.kill()
    mine.declare(declare("burst"))
    shared.start()
    mine.wait(lambda: other.found("acme", KEYS) == 0)
    assert set(other.tier.figures().questions) == {"answered"}

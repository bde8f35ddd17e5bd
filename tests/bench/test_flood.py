"""The requests of the flood's bench, and its conclusions from what it has seen."""

import json
import multiprocessing
import random
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from bench.attacks.flood.__main__ import Seen, table
from bench.attacks.flood.attacker import Attack, attack_until_stopped
from bench.attacks.flood.health import ask_until_stopped
from bench.attacks.flood.loads import MOST_QUEUED, pairs
from bench.attacks.flood.separate_process import in_separate_process
from tenantzone_runtime.frontend.body.grammars import check_grammars
from tenantzone_runtime.settings import Bounds
from tests.waiting import await_that


def test_as_many_requests_queue_and_are_aborted_as_is_said():
    odd = {pair.pathological.name: pair.pathological for pair in pairs(10_000, 1_000)}
    queued, aborted = odd["10,000 queued"], odd["1,000 aborted streams"]
    prompts = len(queued.body(random.Random(1))["prompt"])
    assert queued.at_once * prompts == queued.most * prompts == 10_000
    assert (aborted.most, aborted.is_aborted) == (1_000, True)


def test_nothing_is_odd_about_a_plain_load():
    for pair in pairs(10_000, 1_000):
        body = pair.plain.body(random.Random(1))
        assert isinstance(body["prompt"], str)
        assert len(body["prompt"]) <= 128
        assert "structured_outputs" not in body
        assert not pair.plain.is_aborted
        assert pair.plain.at_once <= MOST_QUEUED


def test_the_frontend_lets_its_grammars_through_so_that_they_attack_what_is_behind():
    (grammars,) = (pair.pathological for pair in pairs(1, 1) if pair.pathological.name == "grammars")
    rng = random.Random(1)
    bodies = [grammars.body(rng) for _ in range(50)]
    assert {kind for body in bodies for kind in body["structured_outputs"]} == {"choice", "regex", "json"}
    assert len({json.dumps(body) for body in bodies}) == 50
    for body in bodies:
        check_grammars(body, Bounds().max_grammar_bytes)


def seen(*seconds):
    return Seen(first_tokens=list(seconds), cached_tokens=[512, 480], health=[0.01, 0.2], resident_bytes=3 * 2**20)


def test_each_load_is_compared_with_its_plain_one_on_the_same_engine():
    pair = pairs(10_000, 1)[0]
    reported = table({"stock": [(pair, seen(0.1, 0.2), seen(*[0.1] * 99, 4.0, 1.0))]}).splitlines()
    assert "0.20 s" in reported[1]
    assert reported[1].split()[-9:-4] == ["480", "0.20", "s", "3", "MiB"]
    assert reported[2].startswith("stock    10,000 queued")
    assert "1.00 s    5.0" in reported[2]


class Answering(BaseHTTPRequestHandler):
    """Refuses every other request."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"])
        self.send_response(200 if len(self.asked) % 2 else 429)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def attack(url: str) -> Attack:
    """An attack with ten streams."""
    (number,) = (number for number, pair in enumerate(pairs(1, 10)) if pair.plain.name == "10 streams")
    return Attack(url, "bench", {}, number, is_odd=False, queued=1, aborted=10, seed=1)


def test_the_attacker_reports_what_it_was_answered():
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with in_separate_process("an attack", partial(attack_until_stopped, attack(url))) as attacked:
            await_that(lambda: len(Answering.asked) == 10, "all have been sent")
        server.shutdown()
    assert len(set(Answering.asked)) == 10
    assert attacked.result == {"200": 5, "429": 5}


class Held(BaseHTTPRequestHandler):
    """Answers its third request only when it may."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []
    connections: ClassVar[set[tuple[str, int]]] = set()
    may_answer = threading.Event()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.connections.add(self.client_address)
        if len(self.asked) == 3:
            self.may_answer.wait(30)
        self.send_response(200 if len(self.asked) < 10 else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_health_is_asked_for_in_turn_and_each_answer_timed():
    began = time.perf_counter()
    with HTTPServer(("127.0.0.1", 0), Held) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with in_separate_process("asking", partial(ask_until_stopped, url)) as health:
            await_that(lambda: len(Held.asked) == 3, "the third is not answered")
            held = time.perf_counter()
            threading.Timer(0.3, Held.may_answer.set).start()
            await_that(lambda: len(Held.asked) >= 5, "it goes on")
        took = time.perf_counter() - held
        assert len(health.result) == len(Held.asked)
        assert 0.3 <= max(health.result) <= took
        assert health.result.index(max(health.result)) == 2
        assert sum(health.result) < time.perf_counter() - began
        assert set(Held.asked) == {"/health"}
        assert len(Held.connections) == 1
        with (
            pytest.raises(RuntimeError, match="it ended too early: asking"),
            in_separate_process("asking", partial(ask_until_stopped, url)),
        ):
            await_that(lambda: not multiprocessing.active_children(), "it has seen that the server is not well")
        server.shutdown()


def kill_the_attacker() -> None:
    (attacker,) = multiprocessing.active_children()
    attacker.kill()
    attacker.join()


def test_an_attacker_that_has_ended_is_reported():
    reported = pytest.raises(RuntimeError, match="it ended too early: an attack")
    with reported, in_separate_process("an attack", partial(attack_until_stopped, attack("http://[::1]:9"))):
        kill_the_attacker()

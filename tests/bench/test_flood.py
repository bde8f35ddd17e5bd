"""What the flood's bench sends, and what it makes of what it has seen."""

import json
import random

from bench.attacks.flood import _QUEUE, Seen, pairs, table
from tenantzone_runtime.door.grammars import check_grammars
from tenantzone_runtime.settings import Bounds


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
        assert pair.plain.at_once <= _QUEUE.requests


def test_the_door_lets_its_grammars_through_so_that_they_attack_what_is_behind():
    (grammars,) = (pair.pathological for pair in pairs(1, 1) if pair.pathological.name == "grammars")
    dice = random.Random(1)
    bodies = [grammars.body(dice) for _ in range(50)]
    assert {kind for body in bodies for kind in body["structured_outputs"]} == {"choice", "regex", "json"}
    assert len({json.dumps(body) for body in bodies}) == 50
    for body in bodies:
        check_grammars(body, Bounds().max_grammar_bytes)


def seen(*seconds):
    return Seen(first_tokens=list(seconds), cached_tokens=[512, 480], health=[0.01, 0.2], resident_bytes=3 * 2**20)


def test_each_load_is_compared_with_its_plain_one_on_the_same_engine():
    pair = pairs(10_000, 1)[0]
    told = table({"stock": [(pair, seen(0.1, 0.2), seen(*[0.1] * 99, 4.0, 1.0))]}).splitlines()
    assert "0.20 s" in told[1]
    assert told[1].split()[-9:-4] == ["480", "0.20", "s", "3", "MiB"]
    assert told[2].startswith("stock    10,000 queued")
    assert "1.00 s    5.0" in told[2]

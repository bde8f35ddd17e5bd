"""What the flood's bench sends, and what it makes of what it has seen."""

import json
import random

from bench.attacks.flood import Seen, loads, table
from tenantzone_runtime.door.grammars import check_grammars
from tenantzone_runtime.settings import Bounds


def test_the_ordinary_load_comes_first_as_the_others_are_compared_with_it():
    assert loads(10_000, 1_000)[0].name == "ordinary"


def test_as_many_requests_queue_and_are_aborted_as_is_said():
    by_name = {load.name: load for load in loads(10_000, 1_000)}
    queued, aborted = by_name["10,000 queued"], by_name["1,000 aborted streams"]
    prompts = len(queued.body(random.Random(1))["prompt"])
    assert queued.at_once * prompts == queued.most * prompts == 10_000
    assert (aborted.most, aborted.is_aborted) == (1_000, True)


def test_the_door_lets_its_grammars_through_so_that_they_attack_what_is_behind():
    (grammars,) = (load for load in loads(1, 1) if load.name == "grammars")
    dice = random.Random(1)
    bodies = [grammars.body(dice) for _ in range(50)]
    assert {kind for body in bodies for kind in body["structured_outputs"]} == {"choice", "regex", "json"}
    assert len({json.dumps(body) for body in bodies}) == 50
    for body in bodies:
        check_grammars(body, Bounds().max_grammar_bytes)


def seen(*seconds):
    return Seen(first_tokens=list(seconds), cached_tokens=[512, 480], health=[0.01, 0.2], resident_bytes=3 * 2**20)


def test_each_load_is_compared_with_its_engines_ordinary_one():
    told = table({"stock": {"ordinary": seen(0.1, 0.2), "queue": seen(*[0.1] * 99, 4.0, 1.0)}}).splitlines()
    assert told[1].split()[:6] == ["stock", "ordinary", "0.20", "s", "1.0", "480"]
    assert "1.00 s    5.0" in told[2]
    assert "0.20 s     3 MiB" in told[2]

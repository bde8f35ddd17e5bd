"""What the engines' reports add up to over some time, whatever they contain."""

import pickle
from typing import Any

import pytest

from tenantzone_operator.advice.window import Window
from tenantzone_operator.engines.observation import Observation
from tests.operator.advice.life import engine, seen


@pytest.mark.parametrize("what", ["why", "waiting_for", "name"])
def test_words_that_an_engine_makes_up_are_not_remembered(what: str):
    window, sizes = Window(), list[int]()
    for number in range(300):
        word = f"{number:0>250}"
        slow: dict[str, Any] = {"ratio": 3.0}
        known = {word: seen(**slow)} if what == "name" else {"acme": seen(**slow | {what: word})}
        window.look([Observation("engine-0", engine(**known | {"burst": seen()}))], {"acme", "burst"})
        sizes.append(len(pickle.dumps(window)))
    assert sizes[-1] < sizes[10] + 250, "less than one such word"
    assert window.figures.looks == 300


def test_an_engine_that_does_not_answer_for_a_while_goes_on_counting():
    window, silent = Window(), Observation("engine-1", None)

    def look(evicted: int, *others: Observation, engines: int = 1) -> int:
        reported = [Observation(f"engine-{each}", engine(acme=seen(evicted_by_ttl=evicted))) for each in range(engines)]
        window.look([*reported, *others], {"acme"})
        return window.figures.zones["acme"].evicted_by_ttl

    assert look(10, engines=2) == 0
    assert look(10, silent) == 0
    assert look(15, engines=2) == 10
    assert look(15) == 10
    assert look(18, engines=2) == 13, "a new one of the name counts from now on"


def test_who_waits_at_its_limit_in_one_engine_of_many_waits_there():
    window = Window()
    waiting = [engine(acme=seen(waiting_for=why)) for why in ("seats", "limit", "limit")]
    window.look([Observation(f"engine-{number}", each) for number, each in enumerate(waiting)], {"acme"})
    assert window.figures.zones["acme"].waited_at_limit == 1

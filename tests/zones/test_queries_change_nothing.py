"""Asking which request is admitted next changes nothing: no block is evicted, and no zone loses its turn."""

import random

from hypothesis import settings

from tests.zones.history_watched import WatchedArbiter
from tests.zones.small_engine import SmallEngine
from tests.zones.test_ledger_machine import ZoneLives
from tests.zones.whole_state import state_of

BOTH_TIMES = "begin_step", "may_continue", "tokens_for", "admit_next", "turned_down", "end_step"
"""Actions of the arbiter that are asked before and after."""
AFTERWARDS = "waits", "waits_no_more", "pause", "preempt"
"""Actions that report a change of the engine's own, so that the arbiter can be asked afterwards only."""


def ask(arbiter, *state):
    """Asks all queries several times, and checks that they changed nothing and that their answers agree."""
    before = state_of(arbiter, *state)
    works = {arbiter.next_front() for _ in range(3)}
    assert len(works) == 1
    assert arbiter.has_admissible() == (works != {None})
    assert state_of(arbiter, *state) == before, "a query has changed something"


class AskedArbiter(WatchedArbiter):
    """Asked by chance before and after its actions, but not within an action."""

    def __init__(self, history, tenancy, engine):
        super().__init__(history, tenancy, engine)
        self._rng = random.Random(0)
        self._depth = 0
        for name in (*BOTH_TIMES, *AFTERWARDS):
            setattr(self, name, self._around(getattr(self, name), is_asked_before=name in BOTH_TIMES))

    def _around(self, action, *, is_asked_before):
        def asked(*args, **kwargs):
            if is_asked_before:
                self._ask()
            self._depth += 1
            try:
                result = action(*args, **kwargs)
            finally:
                self._depth -= 1
            self._ask()
            return result

        return asked

    def _ask(self):
        if not self._depth and self._rng.random() < 0.2:
            self._history._saw("asked")
            ask(self, self._history.model, self._history.requests)


class AskedLives(ZoneLives):
    """Random lives in which the arbiter is asked at random times what it would admit."""

    new_arbiter = AskedArbiter


TestAskedLives = AskedLives.TestCase
TestAskedLives.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)


def test_a_question_evicts_nothing_and_an_admission_does(core):
    engine = SmallEngine(core)
    lead = core.zone("lead", cached=90)
    work = engine.wait(core.zone("burst"), 50)
    engine.arbiter.begin_step()
    ask(engine.arbiter, core)
    assert engine.arbiter.next_front() is work
    assert lead.counters.evicted == {}
    assert engine.arbiter.admit_next() is work
    assert lead.counters.evicted == {"relief": 40}


def test_a_question_lets_nobody_go_to_the_end_of_the_line(core):
    engine = SmallEngine(core)
    engine.run(core.zone("busy"), 60)
    burst = core.zone("burst")
    engine.wait(burst, 50)
    work = engine.wait(core.zone("other"), 10)
    engine.arbiter.begin_step()
    ask(engine.arbiter, core)
    assert (engine.arbiter.next_front(), burst.backoff_ticket, burst.wait_reason) == (work, 0, None)
    assert engine.arbiter.admit_next() is work
    assert burst.backoff_ticket
    assert burst.wait_reason == "in_use"


def test_what_a_step_only_asked_for_is_noted_when_the_step_ends(core):
    engine = SmallEngine(core)
    engine.run(core.zone("busy"), 60)
    burst = core.zone("burst")
    engine.wait(burst, 50)
    engine.arbiter.begin_step()
    assert not engine.arbiter.has_admissible()
    assert burst.wait_reason is None
    engine.arbiter.end_step()
    assert burst.wait_reason == "in_use"

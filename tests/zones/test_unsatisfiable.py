"""Requests that a config made impossible after they arrived."""

import pytest

from tenantzone_runtime.zones.schedule.unsatisfiable import UNSATISFIABLE_SECONDS
from tests.zones.core import declare


def test_what_can_not_be_served_is_said_at_once_and_failed_with_the_numbers_when_no_config_helps(core, engine):
    core.zone("acme", reserved=50, lendable=0)
    burst = core.zone("burst", limit=80)
    work, fits = engine.wait(burst, 51), engine.wait(burst, 50)
    engine.step()
    core.now = UNSATISFIABLE_SECONDS - 0.1
    assert engine.step() == ([], [])
    assert (engine.warned, engine.failed) == ([work], [])
    core.now = UNSATISFIABLE_SECONDS
    assert engine.step() == ([], [fits])
    ((failed, error),) = engine.failed
    assert failed is work
    assert error == (
        "it needs 51 blocks, but zone burst can have at most 50 of this engine's 100, because of its limit of 80 "
        "and the blocks that other zones never lend"
    )


def test_as_long_as_others_of_its_zone_run_no_request_is_unsatisfiable(core, engine):
    capped = core.zone("capped", limit=40)
    runs = engine.run(capped, 30)
    waits = engine.wait(capped, 41)
    engine.step()
    core.now = UNSATISFIABLE_SECONDS
    engine.step()
    assert (engine.warned, engine.failed) == ([], [])
    engine.end(runs)
    engine.step()
    assert engine.warned == [waits]


def test_what_a_config_makes_possible_in_time_is_served(core, engine):
    core.apply(declare("burst", limit=40))
    burst = core.ledger.zones["burst"]
    work = engine.wait(burst, 50)
    engine.step()
    core.apply(declare("burst"))
    core.now = UNSATISFIABLE_SECONDS
    assert engine.step()[1] == [work]
    assert engine.failed == []


def test_a_request_that_is_unsatisfiable_costs_nothing_while_it_waits_for_a_config(core, engine):
    core.zone("acme", reserved=50, lendable=0)
    engine.run(core.zone("busy"), 10)
    for number in range(5):
        engine.wait(core.zone(f"burst-{number}"), 51)
    engine.step()
    asked = []
    engine.blocks_to_admit = lambda work: asked.append(work) or work.count
    core.now = UNSATISFIABLE_SECONDS / 2
    assert engine.step() == ([], [])
    assert asked == []
    core.now = UNSATISFIABLE_SECONDS
    engine.step()
    assert len(engine.failed) == 5


@pytest.fixture
def burst(core):
    """A zone that can have at most half of the blocks."""
    core.zone("acme", reserved=50, lendable=0)
    return core.zone("burst")


def step_at(core, engine, now):
    """Makes a step that admits no request. Returns the requests that have failed by then."""
    core.now = now
    assert engine.step() == ([], [])
    return [work for work, _ in engine.failed]


def test_the_warning_has_the_numbers(core, engine, burst):
    engine.wait(burst, 51)
    engine.step()
    assert engine.warnings == [
        "it needs 51 blocks, but zone burst can have at most 50 of this engine's 100, because of its limit of 100 "
        "and the blocks that other zones never lend"
    ]


def test_who_can_have_just_what_it_asks_for_is_not_unsatisfiable(core, engine, burst):
    runs = engine.run(core.zone("busy"), 50)
    work = engine.wait(burst, 50)
    assert step_at(core, engine, 0.0) == []
    assert step_at(core, engine, UNSATISFIABLE_SECONDS) == []
    engine.end(runs)
    assert engine.step()[1] == [work]
    assert engine.warned == []


def test_time_counts_from_when_a_request_was_found_to_be_unsatisfiable(core, engine, burst):
    work = engine.wait(burst, 51)
    assert step_at(core, engine, 100.0) == []
    assert step_at(core, engine, 129.9) == []
    assert step_at(core, engine, 130.0) == [work]


def test_when_it_leaves_the_next_one_of_its_zone_has_a_time_of_its_own(core, engine, burst):
    first, second = engine.wait(burst, 51), engine.wait(burst, 52)
    assert step_at(core, engine, 0.0) == []
    engine.leave(first)
    assert step_at(core, engine, 10.0) == []
    assert engine.warned == [first, second]
    assert step_at(core, engine, 39.9) == []
    assert step_at(core, engine, 40.0) == [second]


def test_when_another_leaves_that_waits_behind_it_its_time_goes_on(core, engine, burst):
    work, behind, last = [engine.wait(burst, 51) for _ in range(3)]
    assert step_at(core, engine, 0.0) == []
    engine.leave(behind)
    assert step_at(core, engine, 20.0) == []
    assert engine.warned == [work]
    assert step_at(core, engine, 30.0) == [work]
    assert engine.queues == {burst: [last]}


def test_when_the_only_one_of_its_zone_leaves_no_other_fails_and_the_next_has_its_own_time(core, engine, burst):
    engine.leave(engine.wait(burst, 51))
    first = engine.wait(burst, 51)
    assert step_at(core, engine, 0.0) == []
    engine.leave(first)
    second = engine.wait(burst, 51)
    assert step_at(core, engine, 20.0) == []
    assert engine.warned == [first, second]
    engine.leave(second)
    assert step_at(core, engine, 50.0) == []


def test_what_a_config_has_made_possible_and_another_one_impossible_again_is_said_again_and_waits_anew(core, engine):
    def limit(blocks):
        core.apply(declare("burst", limit=blocks))

    limit(40)
    engine.run(core.early(), 60)
    work = engine.wait(core.ledger.zones["burst"], 50)
    for now, blocks in ((0.0, 40), (10.0, 50), (20.0, 40), (49.9, 40)):
        limit(blocks)
        assert step_at(core, engine, now) == []
    assert engine.warned == [work, work]
    assert step_at(core, engine, 50.0) == [work]


def test_a_unsatisfiable_request_of_a_zone_in_which_something_runs_again_keeps_no_other_from_its_end(
    core, engine, burst
):
    other = core.zone("other")
    spared, fails = engine.wait(burst, 51), engine.wait(other, 51)
    assert step_at(core, engine, 0.0) == []
    assert engine.warned == [spared, fails]
    engine.run(burst, 1)
    assert step_at(core, engine, 30.0) == [fails]

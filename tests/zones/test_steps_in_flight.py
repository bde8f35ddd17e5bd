"""Steps that were dispatched and have not ended."""

import pytest

from tenantzone_runtime.zones.model.step_time import LEARNED_AFTER, StepLoad, StepTimes
from tenantzone_runtime.zones.tokens.margin import STEPS, Margin
from tenantzone_runtime.zones.tokens.steps_in_flight import StepsInFlight

DECODES = StepLoad(0, 1)


@pytest.fixture
def times():
    times = StepTimes()
    for _ in range(LEARNED_AFTER):
        times.observe(DECODES, 0.02)
    return times


@pytest.fixture
def margin():
    return Margin()


@pytest.fixture
def steps(times, margin):
    return StepsInFlight(times, margin)


def test_a_step_takes_from_the_end_of_the_one_before_it(steps, times):
    steps.dispatch("a", DECODES, None, 1.0)
    steps.dispatch("b", DECODES, None, 1.0)
    before = times.actual_seconds
    steps.complete("a", 1.03, is_busy=True)
    steps.complete("b", 1.05, is_busy=True)
    assert times.actual_seconds - before == pytest.approx(0.05)


def test_after_a_pause_a_step_takes_from_when_it_was_dispatched(steps, times):
    steps.dispatch("a", DECODES, None, 1.0)
    steps.complete("a", 1.02, is_busy=False)
    before = times.actual_seconds
    steps.dispatch("b", DECODES, None, 60.0)
    steps.complete("b", 60.02, is_busy=False)
    assert times.actual_seconds - before == pytest.approx(0.02)


def test_what_is_left_of_the_steps_in_flight_is_predicted(steps):
    assert steps.seconds_left(1.0) == 0.0
    steps.dispatch("a", DECODES, None, 1.0)
    steps.dispatch("b", DECODES, None, 1.0)
    assert steps.seconds_left(1.0) == pytest.approx(0.04)
    assert steps.seconds_left(1.005) == pytest.approx(0.035)
    assert steps.seconds_left(9.0) == pytest.approx(0.02), "the first one is late, and ends at any moment"
    steps.complete("a", 1.03, is_busy=True)
    assert steps.seconds_left(1.04) == pytest.approx(0.01)


def test_a_step_of_before_the_targets_teaches_nothing(steps, times):
    steps.complete("unknown", 1.0, is_busy=True)
    steps.dispatch("a", DECODES, None, 1.0)
    steps.complete("unknown too", 1.01, is_busy=True)
    assert times.steps == 0
    steps.complete("a", 1.03, is_busy=True)
    assert times.actual_seconds == pytest.approx(0.02)


def test_the_margin_learns_from_steps_that_were_filled_and_did_not_stall(steps, margin):
    def run(bound, seconds):
        for number in range(STEPS):
            steps.dispatch(number, DECODES, bound, float(number))
            steps.complete(number, number + seconds, is_busy=False)
        return margin.share

    before = margin.share
    assert run(None, 0.022) == before, "not bounded"
    assert run(0.2, 0.022) == before, "not filled"
    assert run(0.022, 0.05) == before, "stalled"


def test_the_margin_grows_with_steps_that_take_longer_than_predicted(steps, margin, times):
    times.observe = lambda load, seconds: None
    before = margin.share
    for number in range(STEPS):
        steps.dispatch(number, DECODES, 0.022, float(number))
        steps.complete(number, number + (0.02 if number % 10 else 0.024), is_busy=False)
    assert margin.share > before


def test_a_wide_margin_becomes_narrow_again_though_steps_are_small_then(steps, margin, times):
    times.observe = lambda load, seconds: None
    margin.share = 0.3
    for number in range(STEPS):
        steps.dispatch(number, DECODES, 0.028, float(number))
        steps.complete(number, number + 0.02, is_busy=False)
    assert margin.share < 0.05

"""Predictions of the duration of a step."""

import random

import pytest

from tenantzone_runtime.zones.model.step_time import LEARNED_AFTER, StepLoad, StepTimes


def seconds(load):
    """Seconds on an engine that is linear in what it computes, and slower with prompts."""
    with_prompts = 0.001 + 2e-5 * load.prompt_tokens if load.prompt_tokens else 0.0
    return 0.003 + with_prompts + 2e-4 * load.decodes + 1e-9 * load.attention


def some_load(random):
    load = StepLoad()
    for _ in range(random.randint(1, 40)):
        load.add_decode(1, random.randint(10, 2000))
    if random.random() < 0.5:
        load.add_prompt(random.randint(1, 2000), random.randint(0, 1000))
    return load


def learned(noise=0.03, outliers=0.0, steps=600, slower=1.0):
    number = random.Random(1)
    times = StepTimes()
    for _ in range(steps):
        load = some_load(number)
        outlier = 6.0 if number.random() < outliers else 1.0
        times.observe(load, slower * seconds(load) * outlier * max(0.1, number.gauss(1.0, noise)))
    return times


def worst_error(times, slower=1.0):
    number = random.Random(2)
    loads = [some_load(number) for _ in range(100)]
    return max(abs(times.predict(load) / (slower * seconds(load)) - 1.0) for load in loads)


def test_it_predicts_nothing_before_it_has_seen_enough_steps_of_a_kind():
    times, decode, prompt = StepTimes(), StepLoad(0, 3, 100.0), StepLoad(10, 3, 100.0)
    for _ in range(LEARNED_AFTER - 1):
        times.observe(decode, 0.01)
    assert times.predict(decode) is None
    times.observe(decode, 0.01)
    assert times.predict(decode) == pytest.approx(0.01)
    assert times.predict(prompt) is None, "steps with prompts are another kind"


def test_it_learns_what_each_part_of_a_step_costs():
    times = learned()
    assert worst_error(times) < 0.06
    assert times.seconds_per_prompt_token(0) == pytest.approx(2e-5, rel=0.1)
    assert times.seconds_per_decode(1, 0, has_prompts=False) == pytest.approx(2e-4, rel=0.1)
    assert times.error_seconds < 0.1 * times.actual_seconds
    assert times.predicted_seconds == pytest.approx(times.actual_seconds, rel=0.05)


def test_steps_in_which_the_machine_was_busy_elsewhere_do_not_spoil_it():
    assert worst_error(learned(outliers=0.02)) < 0.15


def test_it_follows_an_engine_that_has_become_slower():
    times, number = learned(), random.Random(3)
    for _ in range(600):
        load = some_load(number)
        times.observe(load, 3.0 * seconds(load))
    assert worst_error(times, slower=3.0) < 0.1


def test_more_work_never_takes_less_time():
    times, number = StepTimes(), random.Random(4)
    for _ in range(200):
        load = some_load(number)
        # More work takes less time: nonsense that a noisy machine may show.
        times.observe(load, 1.0 / (1.0 + load.decodes + load.prompt_tokens))
    small, large = StepLoad(1, 1, 10.0), StepLoad(2000, 40, 1e6)
    assert times.predict(small) <= times.predict(large)


def test_a_step_that_took_no_time_teaches_nothing():
    times = StepTimes()
    for _ in range(2 * LEARNED_AFTER):
        times.observe(StepLoad(0, 1, 1.0), 0.0)
    assert times.predict(StepLoad(0, 1, 1.0)) is None


def test_it_can_predict_steps_twice_as_large_as_those_that_it_has_seen():
    times = StepTimes()
    assert times.reach(0.5) == 256
    times.observe(StepLoad(1000, 3, 100.0), 0.1)
    assert times.reach(0.5) == 2000
    assert times.reach(0.15) == pytest.approx(1500, abs=1), "twice the tokens may take twice the time"
    assert times.reach(0.05) == 1000, "what was seen is the predictor's to judge"
    times.observe(StepLoad(0, 30, 100.0), 0.1)
    assert times.reach(0.5) == 2000, "steps without prompts say nothing of it"
    for _ in range(200):
        times.observe(StepLoad(100, 3, 100.0), 0.01)
    assert times.reach(0.5) == 256, "what was long ago counts no more"

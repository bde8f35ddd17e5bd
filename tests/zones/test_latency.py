"""The outcome of latency targets."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.zone_terms import LatencyTargets
from tenantzone_runtime.zones.model.outcomes import TargetOutcome
from tenantzone_runtime.zones.model.step_time import LEARNED_AFTER, StepLoad, StepTimes
from tenantzone_runtime.zones.tokens.latency import WINDOW_SECONDS, Alone, Latency, Window

TARGETS = LatencyTargets(token_time_seconds=0.05, first_token_seconds=0.5)


@pytest.fixture
def times():
    times = StepTimes()
    for _ in range(LEARNED_AFTER):
        times.observe(StepLoad(0, 1), 0.02)
    return times


def judged(latency, now):
    for _ in latency.judge(now):
        pass


def test_what_is_served_in_time_is_met_and_what_is_not_is_missed_for_the_neighbours(core, times):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    judged(latency, 0.0)
    assert acme.outcomes["token_time"] == TargetOutcome(0.05, None, None, "NoTraffic")
    for number in range(100):
        latency.tokens_came(acme, 0.04 if number < 99 else 0.2, 1.0)
        latency.first_token_came(acme, 0.3, 1.0)
    judged(latency, 2.0)
    assert acme.outcomes["token_time"] == TargetOutcome(0.05, 0.2, False, "Neighbours")
    assert acme.outcomes["first_token"] == TargetOutcome(0.5, 0.3, True, "Met")


def test_what_is_long_ago_does_not_count(core, times):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    latency.tokens_came(acme, 0.2, 0.0)
    judged(latency, WINDOW_SECONDS + 1.0)
    assert acme.outcomes["token_time"].reason == "NoTraffic"


@pytest.mark.parametrize(
    ("requests", "alone", "reason"), [(1, 0.02, "Neighbours"), (9, 0.07, "OwnLoad"), (1, 0.07, "ModelTooSlow")]
)
def test_why_steps_are_too_long(core, times, requests, alone, reason):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    latency.alone[acme] = Alone(requests, alone)
    latency.tokens_came(acme, 0.09, 0.0)
    judged(latency, 1.0)
    assert acme.outcomes["token_time"].reason == reason


@pytest.mark.parametrize(
    ("prefill", "token_time", "first_token"),
    [(0.3, "Neighbours", "Neighbours"), (0.4, "OwnPrompts", "Neighbours"), (0.6, "OwnPrompts", "OwnPrompts")],
)
def test_own_prompts_that_no_plan_fits_into_a_target_are_the_reason(core, times, prefill, token_time, first_token):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    latency.alone[acme] = Alone(1, 0.03, prefill)
    latency.tokens_came(acme, 0.09, 0.0)
    latency.first_token_came(acme, 0.9, 0.0)
    judged(latency, 1.0)
    assert (acme.outcomes["token_time"].reason, acme.outcomes["first_token"].reason) == (token_time, first_token)


def test_prompts_that_a_first_token_target_spreads_over_fewer_steps_are_the_reason_earlier(core, times):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    latency.alone[acme] = Alone(1, 0.03, 0.1, prompt_steps=2)
    latency.tokens_came(acme, 0.09, 0.0)
    judged(latency, 1.0)
    assert acme.outcomes["token_time"].reason == "OwnPrompts"


def test_before_steps_are_known_it_is_warming(core):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, StepTimes())
    latency.tokens_came(acme, 0.09, 0.0)
    judged(latency, 1.0)
    assert acme.outcomes["token_time"].reason == "Warming"


@pytest.mark.parametrize(("waits_for", "reason"), [("in_use", "Blocks"), ("seats", "Seats"), ("tokens", "Neighbours")])
def test_a_first_token_that_waited_for_blocks_or_seats_says_so(core, times, waits_for, reason):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    judged(latency, 0.0)
    acme.counters.stalled_seconds[waits_for] = 3.0
    latency.first_token_came(acme, 3.1, 4.0)
    judged(latency, 5.0)
    assert acme.outcomes["first_token"] == TargetOutcome(0.5, 3.1, False, reason)


def test_without_a_target_nothing_is_said_any_more(core, times):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    latency.tokens_came(acme, 0.2, 0.0)
    judged(latency, 1.0)
    core.ledger.change_spec(acme, replace(acme.spec, latency=LatencyTargets()))
    judged(latency, 2.0)
    assert acme.outcomes == {}


def test_many_tokens_of_one_second_do_not_hide_those_of_the_rest_of_the_minute(core, times):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    for second in range(50):
        for _ in range(3):
            latency.tokens_came(acme, 0.2 if second < 5 else 0.04, float(second), 1000)
    judged(latency, 50.0)
    assert acme.outcomes["token_time"] == TargetOutcome(0.05, 0.2, False, "Neighbours")


@given(st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 1e9)), min_size=1, max_size=300))
def test_the_percentile_is_that_of_all_times_within_a_hundredth(times):
    window, now = Window(), 0.0
    for later, seconds in times:
        now += later
        window.add(seconds, now)
    window.add(1.0, now)
    reported = window.percentile(now)
    since, counted = now, []
    for later, seconds in reversed(times):
        if now - since > WINDOW_SECONDS:
            break
        counted.append((now - since, seconds))
        since -= later
    assert reported is not None
    # Samples from about a minute ago may count or not.
    candidates = [
        sorted([1.0, *(seconds for ago, seconds in counted if ago <= WINDOW_SECONDS - slack)]) for slack in (0.0, 6.0)
    ]
    lowest = min(each[min(len(each) - 1, int(0.99 * len(each)))] for each in candidates)
    highest = max(each[-1] for each in candidates)
    assert lowest * 0.999 <= reported <= highest
    assert reported in candidates[0]


def test_a_reason_stays_until_another_one_is_reported_far_more_often(core, times):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    number, reported = random.Random(1), []
    for second in range(200):
        latency.alone[acme] = Alone(*number.choice([(1, 0.02), (9, 0.07), (1, 0.07)]))
        latency.tokens_came(acme, 0.09, float(second))
        judged(latency, float(second))
        reported.append(acme.outcomes["token_time"].reason)
    assert sum(one != other for one, other in pairwise(reported)) <= 2
    for second in range(200, 260):
        latency.alone[acme] = Alone(9, 0.07)
        latency.tokens_came(acme, 0.09, float(second))
        judged(latency, float(second))
    assert acme.outcomes["token_time"].reason == "OwnLoad"


def test_a_reason_of_long_ago_is_forgotten(core, times):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.tenancy, times)
    for second in range(30):
        latency.tokens_came(acme, 0.09, float(second))
        judged(latency, float(second))
    assert acme.outcomes["token_time"].reason == "Neighbours"
    latency.alone[acme] = Alone(9, 0.07)
    latency.tokens_came(acme, 0.09, 30.0 + WINDOW_SECONDS)
    judged(latency, 30.0 + WINDOW_SECONDS)
    assert acme.outcomes["token_time"].reason == "OwnLoad"

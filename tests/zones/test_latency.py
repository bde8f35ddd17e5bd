"""What becomes of latency targets."""

from dataclasses import replace

import pytest

from tenantzone_runtime.zones.latency import WINDOW_SECONDS, Latency
from tenantzone_runtime.zones.latency_targets import NO_TARGETS, LatencyTargets
from tenantzone_runtime.zones.outcomes import TargetOutcome
from tenantzone_runtime.zones.step_time import LEARNED_AFTER, StepLoad, StepTimes

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
    latency = Latency(core.ledger.totals, times)
    judged(latency, 0.0)
    assert acme.outcomes["token_time"] == TargetOutcome(0.05, None, None, "NoTraffic")
    for number in range(100):
        latency.token_came(acme, 0.04 if number < 99 else 0.2, 1.0)
        latency.first_token_came(acme, 0.3, 1.0)
    judged(latency, 2.0)
    assert acme.outcomes["token_time"] == TargetOutcome(0.05, 0.2, False, "Neighbours")
    assert acme.outcomes["first_token"] == TargetOutcome(0.5, 0.3, True, "Met")


def test_what_is_long_ago_does_not_count(core, times):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.ledger.totals, times)
    latency.token_came(acme, 0.2, 0.0)
    judged(latency, WINDOW_SECONDS + 1.0)
    assert acme.outcomes["token_time"].reason == "NoTraffic"


@pytest.mark.parametrize(
    ("requests", "alone", "reason"), [(1, 0.02, "Neighbours"), (9, 0.07, "OwnLoad"), (1, 0.07, "ModelTooSlow")]
)
def test_why_steps_are_too_long(core, times, requests, alone, reason):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.ledger.totals, times)
    latency.alone[acme] = requests, alone
    latency.token_came(acme, 0.09, 0.0)
    judged(latency, 1.0)
    assert acme.outcomes["token_time"].reason == reason


def test_before_steps_are_known_it_is_warming(core):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.ledger.totals, StepTimes())
    latency.token_came(acme, 0.09, 0.0)
    judged(latency, 1.0)
    assert acme.outcomes["token_time"].reason == "Warming"


@pytest.mark.parametrize(("waits_for", "reason"), [("in_use", "Blocks"), ("seats", "Seats"), ("tokens", "Neighbours")])
def test_a_first_token_that_waited_for_blocks_or_seats_says_so(core, times, waits_for, reason):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.ledger.totals, times)
    judged(latency, 0.0)
    acme.counters.stalled_seconds[waits_for] = 3.0
    latency.first_token_came(acme, 3.1, 4.0)
    judged(latency, 5.0)
    assert acme.outcomes["first_token"] == TargetOutcome(0.5, 3.1, False, reason)


def test_without_a_target_nothing_is_said_any_more(core, times):
    acme = core.zone("acme", latency=TARGETS)
    latency = Latency(core.ledger.totals, times)
    latency.token_came(acme, 0.2, 0.0)
    judged(latency, 1.0)
    core.ledger.change_spec(acme, replace(acme.spec, latency=NO_TARGETS))
    judged(latency, 2.0)
    assert acme.outcomes == {}

"""What other zones may add to a step while a zone with a latency target has requests."""

import random

import pytest

from tenantzone_contract.zone_config.zone_terms import LatencyTargets
from tenantzone_runtime.zones.model.step_time import StepLoad
from tenantzone_runtime.zones.tokens.latency_bounds import OWN_PROMPT_STEPS
from tenantzone_runtime.zones.tokens.latency_budget import SITS_OUT_AT_MOST
from tenantzone_runtime.zones.tokens.own_requests import KNOWN_AFTER
from tests.zones.core import Core, declare
from tests.zones.small_engine import SmallEngine

BASE, PER_TOKEN, PER_DECODE = 0.010, 0.0001, 0.001
"""Seconds: of any step, and in addition for each token of a prompt and for each decode."""


def seconds(engine):
    """Seconds that the last step takes."""
    decodes = sum(work.computed - count >= work.tokens for work, count in engine.computed.items())
    return BASE + PER_DECODE * decodes + PER_TOKEN * (sum(engine.computed.values()) - decodes)


def of(engine, zone):
    """Tokens that the last step computed for a zone."""
    return sum(count for work, count in engine.computed.items() if work.zone is zone)


def computed_of(engine):
    """Zones for which the last step computed anything."""
    return {work.zone for work in engine.computed}


def learned(core, **how):
    """An engine that has seen many steps."""
    engine = SmallEngine(core, step_tokens=1000, **how)
    learn(engine)
    return engine


def learn(engine):
    """Let an engine see many steps."""
    number = random.Random(1)
    for _ in range(200):
        load = StepLoad(number.choice([0, number.randint(1, 900)]), number.randint(1, 60))
        engine.arbiter.times.observe(load, BASE + PER_DECODE * load.decodes + PER_TOKEN * load.prompt_tokens)


@pytest.fixture
def core():
    return Core(1000)


def token_time(target):
    return LatencyTargets(token_time_seconds=target)


def test_others_prompts_are_bounded_so_that_the_step_stays_within_the_target(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.05))
    engine = learned(core)
    engine.run(flood, 10, tokens=50_000)
    engine.run(acme, 1)
    engine.step()
    assert 0.040 < seconds(engine) < 0.050
    assert of(engine, acme) == 1
    assert flood.counters.withheld_tokens > 500


def roofline(engine):
    """Seconds that the last step takes on an engine that computes up to 300 tokens while it reads the weights."""
    return max(0.008, 0.00003 * sum(engine.computed.values()))


def test_small_steps_say_nothing_of_large_ones(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.05))
    engine = SmallEngine(core, step_tokens=8000)
    for _ in range(50):
        engine.arbiter.times.observe(StepLoad(100, 1), 0.008)
        engine.arbiter.times.observe(StepLoad(0, 1), 0.008)
    engine.run(acme, 1)
    engine.run(flood, 10, tokens=500_000)
    prompts = []
    for _ in range(30):
        engine.step()
        assert roofline(engine) <= 1.15 * 0.05
        prompts.append(of(engine, flood))
        print(prompts[-1], roofline(engine))
        engine.arbiter.times.observe(StepLoad(prompts[-1], 1), roofline(engine))
    assert prompts[:3] == [256, 512, 1024]
    assert roofline(engine) > 0.75 * 0.05, "and still the step is filled in the end"


@pytest.mark.parametrize("target", [0.001, 0.0105, 0.02])
def test_zones_whose_targets_leave_each_other_nothing_begin_one_after_the_other(core, target):
    zones = [core.zone(name, latency=token_time(target)) for name in ("acme", "gold")]
    engine = learned(core)
    works = [engine.wait(zone, 1, tokens=500) for zone in zones]
    for _ in range(10 * SITS_OUT_AT_MOST):
        engine.step()
        if all(work.computed >= 500 for work in works):
            return
        assert engine.computed, "an empty step"
    raise AssertionError([work.computed for work in works])


def test_a_request_that_waits_for_tokens_holds_up_no_other_whose_blocks_have_come(core):
    acme, gold, slow = core.zone("acme", latency=token_time(0.0115)), core.zone("gold"), core.zone("slow")
    engine = SmallEngine(core, step_tokens=1000)
    held = engine.run(core.zone("holder"), 900)
    work = engine.wait(gold, 200, tokens=300)
    gold.account.charge(1.0)
    engine.step()
    assert gold.backoff_ticket
    assert gold.wait_reason == "in_use"
    learn(engine)
    engine.run(acme, 1)
    engine.end(held)
    engine.wait(slow, 1, tokens=500)
    engine.step()
    assert computed_of(engine) == {acme}, "its target leaves nothing to others"
    assert (slow.wait_reason, gold.wait_reason) == ("tokens", "tokens")
    for _ in range(SITS_OUT_AT_MOST + 2):
        engine.step()
    assert work.computed, "it has waited for tokens as long as the other has"


def test_before_steps_are_known_no_zone_is_bounded(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.05))
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=50_000)
    engine.run(acme, 1)
    engine.step()
    assert of(engine, flood) == 999


def test_a_step_in_which_the_zone_has_a_prompt_is_nearly_its_own(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.05))
    engine = learned(core)
    engine.run(flood, 10, tokens=50_000)
    for _ in range(10):
        engine.run(flood, 1)
    engine.wait(acme, 1, tokens=200)
    engine.step()
    assert of(engine, acme) == 200
    assert seconds(engine) <= BASE + 200 * PER_TOKEN + 0.25 * 0.05


def test_own_prompts_are_cut_so_that_own_answers_keep_the_target(core):
    acme = core.zone("acme", latency=token_time(0.05))
    core.zone("flood")
    engine = learned(core)
    engine.run(core.ledger.zones["flood"], 1)
    engine.run(acme, 1)
    work = engine.run(acme, 1, tokens=900)
    steps = 0
    while engine.arbiter._engine.is_in_prompt(work):
        engine.step()
        assert seconds(engine) <= 0.05
        steps += 1
    assert steps == 3, "as much as fits into the target in each step"


def test_a_backlog_of_own_prompts_is_computed_in_a_fixed_number_of_steps_whatever_the_target(core):
    acme, _ = core.zone("acme", latency=token_time(0.02)), core.zone("flood")
    engine = learned(core)
    engine.step_tokens = 100_000
    engine.run(acme, 1)
    engine.run(acme, 1, tokens=40_000)
    engine.run(core.ledger.zones["flood"], 1)
    engine.step()
    assert of(engine, acme) >= 40_000 / OWN_PROMPT_STEPS


def test_a_queue_of_own_prompts_does_not_grow_because_of_the_target(core):
    """Only the prompts that a step could compute count; the step takes its part of all waiting ones."""
    acme, flood = core.zone("acme", latency=token_time(0.012)), core.zone("flood")
    engine = learned(core)
    engine.run(acme, 1)
    engine.run(flood, 1)
    waiting, longest, now, due = [], 0, 0.0, 0.0
    for _ in range(2000):
        while due <= now:
            waiting.append(engine.wait(acme, 1, tokens=600))
            due += 0.1
        engine.step()
        now += seconds(engine)
        for work in [work for work in waiting if work.computed >= 600]:
            waiting.remove(work)
            engine.end(work)
        longest = max(longest, len(waiting))
    assert longest <= 20, "6,000 tokens a second come, and an engine computes 9,000"


def test_cached_prompts_count_as_what_is_left_of_them(core):
    acme, flood = core.zone("acme", latency=token_time(0.05)), core.zone("flood")
    engine = learned(core)
    engine.run(flood, 1)
    for _ in range(50):
        acme.counters.prompt_tokens += 1000
        acme.counters.prefix_hit_tokens += 900
        engine.end(engine.run(acme, 1))
        engine.run(acme, 1)
        engine.step()
    engine.end(engine.running[-1])
    for _ in range(20):
        engine.wait(acme, 1, tokens=1000)
    engine.step()
    assert engine.arbiter.latency.alone[acme].prefill_seconds < 20 * 200 * PER_TOKEN


def test_own_prompts_that_do_not_fit_are_distinguished_from_planned_ones(core):
    acme, flood = core.zone("acme", latency=token_time(0.03)), core.zone("flood")
    engine = learned(core)
    engine.run(acme, 1)
    engine.run(flood, 1)
    for _ in range(200):
        while len(engine.waiting) < 20:
            engine.wait(acme, 1, tokens=900)
        engine.step()
        engine.arbiter.latency.tokens_came(acme, seconds(engine), core.now)
        for work in [work for work in engine.running if work.tokens and work.computed >= work.tokens]:
            engine.end(work)
    for _ in engine.arbiter.latency.judge(core.now):
        pass
    assert acme.outcomes["token_time"].reason == "OwnPrompts"


@pytest.mark.parametrize("own", [250, 3000])
def test_own_prompts_leave_others_a_part_of_the_step_within_the_target(core, own):
    acme, flood = core.zone("acme", latency=token_time(0.05)), core.zone("flood")
    engine = learned(core)
    for _ in range(60):
        engine.run(flood, 1)
    engine.run(acme, 1)
    engine.run(acme, 1, tokens=own)
    engine.step()
    assert seconds(engine) <= 0.05
    assert of(engine, flood) >= 4
    assert engine.arbiter._tokens.bound == 0.05


def test_a_step_that_own_prompts_make_longer_than_the_target_is_bounded_by_nothing_that_a_margin_learns_from(core):
    acme, flood = core.zone("acme", latency=token_time(0.02)), core.zone("flood")
    engine = learned(core)
    engine.step_tokens = 100_000
    engine.run(flood, 1)
    engine.run(acme, 1)
    engine.run(acme, 1, tokens=40_000)
    engine.step()
    assert seconds(engine) > 0.02
    assert engine.arbiter._tokens.bound is None


def test_the_margin_is_left_unused(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.05))
    engine = learned(core)
    engine.run(flood, 10, tokens=50_000)
    engine.run(acme, 1)
    engine.arbiter._tokens._latency_budget._margin.share = 0.3
    engine.step()
    assert seconds(engine) <= 0.7 * 0.05


@pytest.mark.parametrize("prompts_seen", [False, True])
def test_a_long_step_in_flight_does_not_make_a_target_count_as_out_of_reach(core, prompts_seen):
    flood, acme = core.zone("flood"), core.zone("acme", latency=LatencyTargets(first_token_seconds=0.2))
    engine = learned(core, depth=2)
    if prompts_seen:
        engine.end(engine.run(acme, 1, tokens=10))
        engine.wait(acme, 1, tokens=10)
        engine.step()
    for _ in range(5):
        engine.run(acme, 1)
    engine.run(flood, 10, tokens=10**6)
    engine.arbiter.dispatched("long", StepLoad(8000, 1), 0.0)
    engine.step()
    assert of(engine, flood) < 64
    engine.arbiter.steps_in_flight.complete("long", 0.8, is_busy=True)
    engine.step()
    assert of(engine, flood) > 64
    assert seconds(engine) <= 0.2


def test_a_target_for_the_first_token_lets_own_prompts_take_longer_steps(core):
    latency = LatencyTargets(token_time_seconds=0.05, first_token_seconds=0.1)
    acme, flood = core.zone("acme", latency=latency), core.zone("flood")
    engine = learned(core)
    engine.run(flood, 1)
    engine.run(acme, 1)
    engine.run(acme, 1, tokens=900)
    engine.step()
    assert of(engine, acme) == 901


def test_a_flood_that_fills_every_step_with_prompts_is_bounded_too(core):
    """In that case no step without prompts was ever seen, and all seen steps are alike."""
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.05))
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=10**6)
    engine.run(acme, 1)
    for _ in range(30):
        engine.step()
        prompts, decodes = of(engine, flood), of(engine, acme)
        engine.arbiter.times.observe(StepLoad(prompts, decodes), seconds(engine))
    assert 0.040 < seconds(engine) <= 0.05
    assert of(engine, acme) == 1


def test_a_step_dispatched_already_is_part_of_what_a_first_token_waits_for(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=LatencyTargets(first_token_seconds=0.10))
    engine = learned(core, depth=2)
    engine.run(flood, 10, tokens=50_000)
    engine.run(acme, 1)
    engine.arbiter.dispatched("long", StepLoad(600, 1), 0.0)
    engine.step()
    assert seconds(engine) <= 0.03, "70 of 100 ms are gone"


def test_a_target_is_not_kept_for_a_zone_that_pauses_for_longer_than_it_ever_does(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.05), after=600.0)
    engine = learned(core)
    for _ in range(KNOWN_AFTER):
        work = engine.run(acme, 1)
        engine.step()
        engine.end(work)
        engine.step()
        core.now += 1.0
    work = engine.run(acme, 1)
    engine.step()
    engine.end(work)
    engine.run(flood, 10, tokens=10**6)
    engine.step()
    assert of(engine, flood) < 500, "it may come back within its usual pauses"
    core.now += 1.5
    engine.step()
    assert of(engine, flood) == 1000


def test_where_even_decodes_are_too_many_they_are_skipped_in_turn(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.03))
    engine = learned(core)
    decodes = [engine.run(flood, 1) for _ in range(60)]
    engine.run(acme, 1)
    for _ in range(5):
        engine.step()
        assert seconds(engine) <= 0.03
    assert min(work.computed for work in decodes) >= 1
    assert max(work.computed for work in decodes) <= 2


def test_a_target_that_its_own_requests_miss_by_far_holds_up_no_other_zone(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.03))
    engine = learned(core)
    decodes = [engine.run(flood, 1) for _ in range(30)]
    for _ in range(50):
        engine.run(acme, 1)
    engine.step()
    assert all(work.computed == 1 for work in decodes)


def test_a_target_that_is_no_longer_needed_costs_nothing(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.05), after=60.0)
    engine = learned(core)
    engine.run(flood, 10, tokens=50_000)
    work = engine.run(acme, 1)
    core.now = 10.0
    engine.end(work)
    core.now = 69.0
    engine.step()
    assert of(engine, flood) < 500, "the zone may come back at any moment"
    core.now = 71.0
    engine.step()
    assert of(engine, flood) == 1000


def test_who_has_sat_out_for_long_is_computed_whatever_the_target_says(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.0112))
    engine = learned(core)
    decodes = [engine.run(flood, 1) for _ in range(3)]
    prompt = engine.run(flood, 1, tokens=5000)
    engine.run(acme, 1)
    for _ in range(SITS_OUT_AT_MOST):
        engine.step()
        assert of(engine, flood) == 0
    for _ in range(6):
        engine.step()
    assert all(work.computed for work in (*decodes, prompt))


def test_an_empty_step_is_not_made(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.0101))
    engine = learned(core)
    engine.end(engine.run(acme, 1))
    decodes = [engine.run(flood, 1) for _ in range(3)]
    for _ in range(6):
        engine.step()
        assert of(engine, flood) == 1
    assert [work.computed for work in decodes] == [2, 2, 2]
    for work in decodes:
        engine.end(work)
    engine.run(flood, 1, tokens=5000)
    engine.step()
    assert of(engine, flood) > 0


def test_a_target_for_the_first_token_bounds_the_steps_that_it_may_have_to_wait_for(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=LatencyTargets(first_token_seconds=0.10))
    longest = []
    for depth in (1, 2):
        engine = learned(core, depth=depth)
        flooding, work = engine.run(flood, 10, tokens=50_000), engine.run(acme, 1)
        engine.step()
        longest.append(seconds(engine))
        engine.end(flooding)
        engine.end(work)
    assert 0.060 < longest[0] <= 0.080
    assert 0.035 < longest[1] <= 0.100 / 2.25


def test_a_target_for_the_first_token_never_bounds_steps_to_less_than_its_own_prompts_take(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=LatencyTargets(first_token_seconds=0.04))
    engine = learned(core)
    work = engine.wait(acme, 1, tokens=250)
    engine.step()
    assert seconds(engine) == pytest.approx(0.035)
    engine.end(work)
    decodes = [engine.run(flood, 1) for _ in range(40)]
    engine.step()
    assert sum(work.computed for work in decodes) >= 15, "else they would be held up for nothing"


def test_of_two_targets_each_bounds_the_other(core):
    fast, slow = core.zone("fast", latency=token_time(0.03)), core.zone("slow", latency=token_time(0.06))
    engine = learned(core)
    engine.run(slow, 10, tokens=50_000)
    engine.run(fast, 1)
    engine.step()
    assert of(engine, fast) == 1
    assert seconds(engine) <= 0.03
    for _ in range(4):
        engine.run(slow, 1)
    engine.run(fast, 10, tokens=50_000)
    engine.step()
    assert of(engine, slow) < 100, "a step with a prompt of the other's is nearly its own"


def test_all_requests_end_however_tight_a_target_is(core):
    """Liveness: a skipped request is computed in the end, although its neighbour never leaves."""
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.0105))
    engine = learned(core)
    engine.run(acme, 1)
    work = engine.run(flood, 1, tokens=300)
    steps = 0
    while work.computed < 303:
        engine.step()
        steps += 1
        assert steps < 40 * (300 // 64 + 4)


@pytest.mark.parametrize("step_tokens", [8, 32, 64, 65])
def test_who_has_sat_out_for_long_is_computed_however_small_steps_are(core, step_tokens):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(0.0112))
    engine = learned(core)
    engine.step_tokens = step_tokens
    running, waiting = engine.run(flood, 1, tokens=5000), engine.wait(core.zone("burst"), 1, tokens=50)
    engine.run(acme, 1)
    for _ in range(4 * SITS_OUT_AT_MOST):
        engine.step()
    assert running.computed
    assert waiting.computed


@pytest.mark.parametrize("of_gold", [{}, {"latency": LatencyTargets(token_time_seconds=5.0)}], ids=["none", "easy"])
def test_prompts_without_end_of_a_zone_with_a_target_do_not_starve_others(core, of_gold):
    acme, gold = core.zone("acme", latency=token_time(0.2)), core.zone("gold", **of_gold)
    engine = learned(core)
    engine.run(acme, 1, tokens=10**6)
    work = engine.run(gold, 1, tokens=10**6)
    for _ in range(3 * SITS_OUT_AT_MOST):
        engine.step()
    assert work.computed >= 2 * 64


def test_prompts_of_a_zone_whose_target_no_step_can_meet_hold_up_no_other(core):
    flood, acme = core.zone("flood"), core.zone("acme", latency=token_time(BASE / 2))
    engine = learned(core)
    engine.run(acme, 1, tokens=10**6)
    engine.run(flood, 1, tokens=10**6)
    engine.step()
    assert (of(engine, acme), of(engine, flood)) == (500, 500)


@pytest.mark.parametrize("why", ["has_no_room", "stands_still"])
@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("decodes", [0, 3])
def test_a_prompt_that_can_not_go_on_holds_up_no_other_request(core, why, runs, decodes):
    """The zone with the room may be the one that would be held up."""
    flood, gold = core.zone("flood"), core.zone("gold")
    acme = core.zone("acme", latency=LatencyTargets(first_token_seconds=0.001))
    engine = learned(core)
    (engine.run if runs else engine.wait)(acme, 1, tokens=5000, **{why: True})
    for _ in range(decodes):
        engine.run(gold, 1)
    for _ in range(5):
        engine.step()
    prompt = engine.run(flood, 1, tokens=3000)
    for _ in range(SITS_OUT_AT_MOST + 1 if decodes else 2):
        engine.step()
    assert prompt.computed > 0
    for _ in range(100 * SITS_OUT_AT_MOST):
        engine.step()
    assert prompt.computed >= prompt.tokens


@pytest.mark.parametrize("why", ["has_no_room", "stands_still"])
def test_an_overdue_zone_that_can_not_go_on_holds_up_no_other_overdue_zone(core, why):
    flood, gold = core.zone("flood"), core.zone("gold")
    acme = core.zone("acme", latency=token_time(0.0115))
    engine = learned(core)
    engine.run(acme, 1)
    engine.run(gold, 1, tokens=5000, **{why: True})
    for _ in range(5):
        engine.step()
    prompt = engine.run(flood, 1, tokens=3000)
    for _ in range(100 * SITS_OUT_AT_MOST):
        engine.step()
    assert prompt.computed >= prompt.tokens


def test_nothing_is_kept_of_zones_that_are_gone():
    core = Core(1000)
    engine, declared = learned(core), {"latency": LatencyTargets(token_time_seconds=0.02, first_token_seconds=0.1)}
    core.apply(declare("acme", **declared))
    for number in range(20):
        core.apply(declare("acme", **declared), declare(f"gold-{number}", **declared), declare(f"flood-{number}"))
        zones = core.ledger.zones
        works = [engine.run(zones[name], 1, tokens=900) for name in ("acme", f"gold-{number}", f"flood-{number}")]
        for _ in range(3):
            engine.step()
        for work in works:
            engine.end(work)
    budget = engine.arbiter._tokens._latency_budget
    assert len(budget._starved) <= 3
    assert len(budget._targets._own) <= 3


def test_requests_of_one_zone_with_a_target_are_skipped_for_another_in_turn(core):
    fast, slow = core.zone("fast", latency=token_time(0.0125)), core.zone("slow", latency=token_time(0.06))
    engine = learned(core)
    engine.run(fast, 1)
    decodes = [engine.run(slow, 1) for _ in range(8)]
    for _ in range(8):
        engine.step()
        assert seconds(engine) <= 0.0125
    assert [work.computed for work in decodes] == [1] * 8


def test_zones_that_wait_for_what_each_other_was_promised_are_not_held_up_by_a_target(core):
    """Nothing runs, so reservations are lent, and a bound on steps does not prevent that."""
    acme = core.zone("acme", reserved=600, latency=token_time(0.05))
    gold = core.zone("gold", reserved=400)
    engine = learned(core)
    works = [engine.wait(zone, 700, tokens=500) for zone in (acme, gold)]
    for _ in range(10):
        engine.step()
        for work in [work for work in engine.running if work.computed >= 500]:
            engine.end(work)
    assert not set(works) & {*engine.running, *engine.waiting}


def test_a_zone_that_is_alone_has_what_its_prompts_turn_out_to_need(core):
    """More of its prompts begin than was predicted before the step: their prefixes are cached."""
    acme = core.zone("acme", limit=10, latency=token_time(0.05))
    engine = learned(core)
    works = [engine.wait(acme, 1, tokens=100, shared=5) for _ in range(5)]
    engine.step()
    assert [engine.computed[work] for work in works] == [100] * 5
    assert acme.counters.withheld_tokens == 0

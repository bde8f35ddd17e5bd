"""Weighted deficit round robin over the tokens of steps."""

import hypothesis.strategies as st
from hypothesis import given

from tenantzone_runtime.zones.deficits import BOUND, CHUNK, DeficitRoundRobin
from tests.zones.core import Core

WEIGHTS = st.sampled_from([1, 1, 2, 7, 100])
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 63, 64, 500, 8192]), st.lists(st.integers(0, 400), max_size=4), st.booleans()),
    max_size=60,
)


def zones(weights):
    core = Core()
    return [core.zone(f"tenant-{number}", weight=weight) for number, weight in enumerate(weights)]


@given(st.lists(WEIGHTS, min_size=2, max_size=6), STEPS)
def test_two_that_always_have_work_are_never_further_apart_than_the_bound(weights, steps):
    first, second, *others = zones(weights)
    deficits = DeficitRoundRobin()
    service = dict.fromkeys((first, second), 0)
    for budget, demands, begins in steps:
        wanted = {first: 10**6, second: 10**6, **dict(zip(others, demands, strict=False))}
        granted = deficits.share(budget, wanted, {zone: CHUNK for zone in wanted if begins and zone in others})
        assert sum(granted.values()) == budget, "nothing is left over while there is work"
        assert all(0 <= granted[zone] <= wanted[zone] for zone in wanted)
        service = {zone: tokens + granted[zone] for zone, tokens in service.items()}
    shares = [service[zone] / zone.spec.weight for zone in (first, second)]
    assert abs(shares[0] - shares[1]) <= BOUND


@given(st.integers(0, 5000), st.lists(st.tuples(WEIGHTS, st.integers(0, 2000)), min_size=1, max_size=6))
def test_nobody_gets_more_than_it_has_work_for_and_nothing_is_left_while_somebody_has(budget, demands):
    wanted = dict(zip(zones([weight for weight, _ in demands]), (tokens for _, tokens in demands), strict=True))
    granted = DeficitRoundRobin().share(budget, wanted)
    assert all(granted[zone] <= tokens for zone, tokens in wanted.items())
    assert sum(granted.values()) == min(budget, sum(wanted.values()))


def test_a_step_is_shared_by_weight_and_what_one_has_no_work_for_is_the_others():
    light, heavy, small = zones([1, 3, 4])
    granted = DeficitRoundRobin().share(1000, {light: 5000, heavy: 5000, small: 100})
    assert granted == {light: 225, heavy: 675, small: 100}


def test_what_a_zone_could_not_use_is_owed_to_it_up_to_a_chunk():
    acme, beta = zones([1, 1])
    deficits = DeficitRoundRobin()
    deficits.share(20, {acme: 500, beta: 500})
    deficits.owe(acme, 10)
    deficits.owe(acme, 1000)
    assert deficits.share(200, {acme: 500, beta: 500}) == {acme: 100 + CHUNK, beta: 100 - CHUNK}


def test_who_has_no_work_meanwhile_is_owed_nothing_when_it_comes_back():
    acme, beta = zones([1, 1])
    deficits = DeficitRoundRobin()
    deficits.share(20, {acme: 500, beta: 500})
    deficits.owe(acme, CHUNK)
    deficits.share(20, {beta: 500})
    assert deficits.share(20, {acme: 500, beta: 500}) == {acme: 10, beta: 10}


def test_single_tokens_go_round():
    three = zones([1, 1, 1])
    deficits = DeficitRoundRobin()
    granted = [deficits.share(1, dict.fromkeys(three, 10)) for _ in range(6)]
    assert [sum(each[zone] for each in granted) for zone in three] == [2, 2, 2]


def test_who_finds_what_others_left_pays_back_up_to_a_chunk():
    acme, beta = zones([1, 1])
    deficits = DeficitRoundRobin()
    deficits.share(20, {acme: 500, beta: 500})
    deficits.charge(acme, 10)
    deficits.charge(acme, 1000)
    assert deficits.share(200, {acme: 500, beta: 500}) == {acme: 100 - CHUNK // 2, beta: 100 + CHUNK // 2}

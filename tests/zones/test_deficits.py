"""Weighted deficit round robin over the tokens of steps."""

import hypothesis.strategies as st
from hypothesis import given

from tenantzone_runtime.zones.tokens.deficits import BOUND, CHUNK, DeficitRoundRobin
from tests.zones.core import Core

WEIGHTS = st.sampled_from([1, 1, 2, 7, 100])
BUDGETS = [0, 1, 2, 63, 64, 100, 196, 500, 8192]
STEPS = st.lists(st.tuples(st.sampled_from(BUDGETS), st.lists(st.integers(0, 400), max_size=4)), max_size=60)


def zones(weights):
    core = Core()
    return [core.zone(f"tenant-{number}", weight=weight) for number, weight in enumerate(weights)]


def apart(weights, steps, least):
    """Returns the largest lead between two zones that always have work, in tokens per unit of weight.

    Args:
        weights: of the zones, these two first.
        steps: the budget of each, and the demands of the other zones.
        least: returns, of a step's budget, the zones, and the two, the least number of tokens of some zones.
    """
    first, second, *others = zones(weights)
    deficits = DeficitRoundRobin()
    service = dict.fromkeys((first, second), 0)
    apart = 0.0
    for budget, demands in steps:
        wanted = {first: 10**6, second: 10**6, **dict(zip(others, demands, strict=False))}
        needed = least(budget, wanted, (first, second))
        granted = deficits.share(budget, wanted, needed)
        left = budget - sum(granted.values())
        without = [zone for zone in wanted if granted[zone] < wanted[zone]]
        assert not left or all(not granted[zone] and left < needed.get(zone, 1) for zone in without), "it is of use"
        assert all(0 <= granted[zone] <= wanted[zone] for zone in wanted)
        service = {zone: tokens + granted[zone] for zone, tokens in service.items()}
        one, other = (tokens / zone.spec.weight for zone, tokens in service.items())
        apart = max(apart, abs(one - other))
    return apart


@given(st.lists(WEIGHTS, min_size=2, max_size=6), STEPS)
def test_two_that_always_have_work_are_hardly_apart_where_single_tokens_are_of_use(weights, steps):
    assert apart(weights, steps, lambda budget, wanted, two: {}) <= CHUNK


@given(st.lists(WEIGHTS, min_size=2, max_size=6), STEPS)
def test_two_that_always_have_work_are_hardly_apart_where_others_need_a_chunk(weights, steps):
    assert apart(weights, steps, lambda budget, wanted, two: dict.fromkeys(wanted.keys() - set(two), CHUNK)) <= BOUND


@given(st.lists(WEIGHTS, min_size=2, max_size=6), STEPS)
def test_two_that_always_have_work_are_never_further_apart_than_the_bound_where_all_need_a_chunk(weights, steps):
    assert apart(weights, steps, lambda budget, wanted, _: dict.fromkeys(wanted, min(CHUNK, budget))) <= BOUND


@given(st.lists(WEIGHTS, min_size=2, max_size=6), st.sampled_from(BUDGETS), st.lists(st.integers(0, 400), max_size=4))
def test_they_are_no_further_apart_if_steps_are_all_alike(weights, budget, demands):
    steps = [(budget, demands)] * 200
    assert apart(weights, steps, lambda budget, wanted, _: dict.fromkeys(wanted, min(CHUNK, budget))) <= BOUND
    assert apart(weights, steps, lambda budget, wanted, two: dict.fromkeys(wanted.keys() - set(two), CHUNK)) <= BOUND


def test_a_chunk_each_goes_round_where_a_step_has_too_few_tokens_for_all():
    four = zones([1, 1, 1, 1])
    deficits = DeficitRoundRobin()
    granted = [deficits.share(2 * CHUNK, dict.fromkeys(four, 10**6), dict.fromkeys(four, CHUNK)) for _ in range(4)]
    assert [[each[zone] for each in granted] for zone in four] == [
        [CHUNK, 0, CHUNK, 0],
        [CHUNK, 0, CHUNK, 0],
        [0, CHUNK, 0, CHUNK],
        [0, CHUNK, 0, CHUNK],
    ]


def test_a_light_zone_has_its_chunk_once_it_has_earned_it():
    heavy, light = zones([7, 1])
    deficits = DeficitRoundRobin()
    least = dict.fromkeys((heavy, light), CHUNK)
    granted = [deficits.share(CHUNK, dict.fromkeys(least, 10**6), least) for _ in range(16)]
    assert [sum(each[zone] for each in granted) for zone in (heavy, light)] == [14 * CHUNK, 2 * CHUNK]


def test_a_light_zone_with_one_short_prompt_after_the_other_gets_little_more_than_its_share():
    heavy, light = zones([10, 1])
    deficits = DeficitRoundRobin()
    given = 0
    for step in range(240):
        wanted = {light: CHUNK, heavy: 10**6} if step % 2 else {heavy: 10**6}
        given += deficits.share(CHUNK, wanted, dict.fromkeys(wanted, CHUNK)).get(light, 0)
    assert given <= 2 * 240 * CHUNK / 11


def test_a_zone_whose_image_did_not_fit_for_long_does_not_fill_many_steps_later():
    text, images = zones([1, 1])
    deficits = DeficitRoundRobin()
    wanted, least = {text: 10**6, images: 10**6}, {text: CHUNK, images: 512}
    assert all(deficits.share(200, wanted, least) == {text: 200, images: 0} for _ in range(1000))
    assert deficits.share(1024, wanted, least) == {text: 512, images: 512}


@given(st.integers(0, 5000), st.lists(st.tuples(WEIGHTS, st.integers(0, 2000)), min_size=1, max_size=6))
def test_no_zone_gets_more_than_it_has_work_for_and_nothing_is_left_while_a_zone_has_work(budget, demands):
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

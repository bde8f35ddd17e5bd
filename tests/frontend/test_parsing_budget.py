"""The time that the parsers of one request may take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.frontend.body.parsing_budget import (
    BASE_SECONDS,
    EXCESS_SECONDS,
    LINEAR_SECONDS,
    SECONDS_OF_TOKEN,
    ParsingBudget,
)


def test_a_call_may_take_its_excess_and_what_a_linear_parser_takes():
    budget = ParsingBudget()
    budget.begin_turn(32_000)
    assert budget.limit(0, 0) == pytest.approx(EXCESS_SECONDS)
    assert budget.limit(1000, 0) == pytest.approx(EXCESS_SECONDS + 1000 * LINEAR_SECONDS)


def test_calls_of_one_turn_share_the_excess_and_another_turn_has_its_own():
    budget = ParsingBudget()
    budget.begin_turn(1000)
    budget.spend(0.004, 0, 0)
    assert budget.limit(0, 0) == pytest.approx(EXCESS_SECONDS - 0.004)
    budget.spend(0.02, 0, 0)
    assert budget.limit(0, 0) < 0
    budget.begin_turn(1)
    assert budget.limit(0, 0) == pytest.approx(EXCESS_SECONDS)


def test_all_calls_of_a_request_share_what_its_tokens_are_worth():
    budget = ParsingBudget()
    for _ in range(4):
        budget.begin_turn(1)
        budget.spend(0.012, 0, 0)
    budget.begin_turn(1)
    left = BASE_SECONDS + 5 * SECONDS_OF_TOKEN - 4 * 0.012
    assert budget.limit(0, 0) == pytest.approx(left)
    assert budget.limit(10**6, 0) == pytest.approx(left), "a long text is worth no more than its tokens"


def test_a_stream_has_time_again_when_more_tokens_have_come():
    budget = ParsingBudget()
    budget.begin_turn(1)
    assert budget.has_time_for(0)
    budget.spend(0.02, 0, 0)
    # The last turn took 20 ms, and 31 of 51 are left.
    assert not budget.has_time_for(28)
    assert budget.has_time_for(30)
    budget.begin_turn(30)
    assert budget.has_time_for(0), "nothing was taken in this turn yet"


calls = st.tuples(st.booleans(), st.integers(0, 50), st.floats(0, 1), st.integers(0, 2000))


@given(st.lists(calls, max_size=60))
def test_calls_that_keep_their_limits_keep_the_budget(history: list[tuple[bool, int, float, int]]):
    budget, spent, excess = ParsingBudget(), 0.0, 0.0
    for is_new_turn, tokens, share, characters in history:
        if is_new_turn:
            budget.begin_turn(tokens)
            excess = 0.0
        took = share * max(0.0, budget.limit(characters, 0))
        budget.spend(took, characters, 0)
        spent += took
        excess += max(0.0, took - characters * LINEAR_SECONDS)
        assert spent <= BASE_SECONDS + SECONDS_OF_TOKEN * budget.tokens + 1e-9
        assert excess <= EXCESS_SECONDS + 1e-9

"""The promises of latency targets, as formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.tokens.latency_bounds import TOLERANCE, token_time_bound

SECONDS = st.floats(0.001, 1.0)


def test_prompts_that_fit_when_spread_leave_the_target_as_it_is():
    assert token_time_bound(0.04, solo_step=0.02, own_prefill=0.32) == pytest.approx(TOLERANCE * 0.04)


def test_prompts_that_do_not_fit_add_a_part_of_themselves_and_an_eighth_of_the_target():
    bound = token_time_bound(0.04, solo_step=0.02, own_prefill=0.48)
    assert bound == pytest.approx(TOLERANCE * (0.02 + 0.03 + 0.005))


@given(SECONDS, SECONDS, SECONDS)
def test_no_bound_is_below_the_target_or_the_zones_own_step(target, solo, prefill):
    bound = token_time_bound(target, solo_step=solo, own_prefill=prefill)
    assert bound >= TOLERANCE * min(target, solo)
    assert bound >= target

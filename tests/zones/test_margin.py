"""The part of a bound on steps that stays unused."""

import random

import pytest

from tenantzone_runtime.zones.tokens.margin import NARROWEST, STEPS, WIDEST, Margin


def learned(ratios):
    margin = Margin()
    for ratio in ratios:
        margin.observe(ratio)
    return margin


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.08])
def test_about_one_step_in_a_hundred_takes_longer_than_the_margin_allows(noise):
    rng = random.Random(1)
    margin, exceeded, steps = Margin(), 0, 20_000
    for step in range(steps):
        ratio = rng.gauss(1.0, noise)
        if step >= STEPS:
            exceeded += ratio * (1.0 - margin.share) > 1.0
        margin.observe(ratio)
    assert 0.004 * steps < exceeded < 0.02 * steps


def test_exact_predictions_leave_the_narrowest_margin_and_wild_ones_the_widest():
    assert learned([1.0] * STEPS).share == NARROWEST
    assert learned([1.0] * (STEPS - 10) + [3.0] * 10).share == WIDEST


def test_before_enough_steps_are_known_the_margin_stays_as_it_is():
    assert learned([1.4] * (STEPS - 1)).share == Margin().share


def test_steps_of_long_ago_do_not_count():
    wild = [1.5] * STEPS
    assert learned(wild).share > 0.25
    assert learned(wild + [1.0] * STEPS).share == NARROWEST

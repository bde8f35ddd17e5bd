"""The estimate of mutual information, on channels of known capacity."""

import random
from math import log2

import pytest

from bench.attacks.lending.information import estimate, into_bins

PAIRS = 4000


def secrets(levels: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(levels) for _ in range(PAIRS)]


@pytest.mark.parametrize("levels", [2, 4, 16])
def test_a_channel_without_noise_carries_everything(levels: int):
    sent = secrets(levels)
    reported = estimate(sent, [f"level {level}" for level in sent])
    assert reported.plug_in == pytest.approx(log2(levels), abs=0.01)
    assert reported.bits == pytest.approx(log2(levels), abs=0.05)
    assert reported.p_value < 0.01


@pytest.mark.parametrize("flipped", [0.05, 0.11, 0.25])
def test_a_binary_symmetric_channel_carries_one_less_the_entropy_of_its_noise(flipped: float):
    rng = random.Random(2)
    sent = secrets(2)
    entropy = -flipped * log2(flipped) - (1 - flipped) * log2(1 - flipped)
    reported = estimate(sent, [bit ^ (rng.random() < flipped) for bit in sent])
    assert reported.bits == pytest.approx(1 - entropy, abs=0.04)


@pytest.mark.parametrize("erased", [0.3, 0.9])
def test_an_erasure_channel_carries_what_is_not_erased(erased: float):
    rng = random.Random(3)
    sent = secrets(4)
    reported = estimate(sent, [None if rng.random() < erased else level for level in sent])
    assert reported.bits == pytest.approx(2 * (1 - erased), abs=0.05)


@pytest.mark.parametrize("levels", [2, 16])
def test_independent_data_leaks_nothing(levels: int):
    reported = estimate(secrets(levels, 4), secrets(levels, 5))
    assert reported.bits < 0.01
    assert reported.p_value > 0.01


def test_the_bias_of_few_pairs_is_taken_off():
    reported = estimate(secrets(16, 4)[:100], secrets(16, 5)[:100])
    assert reported.plug_in > 1
    assert reported.bits < 0.2


def test_pairs_need_both_sides():
    with pytest.raises(ValueError, match="no pairs"):
        estimate([], [])
    with pytest.raises(ValueError, match="2 secrets"):
        estimate([1, 2], [1])


def test_bins_have_as_many_values_each_and_never_part_equal_ones():
    assert into_bins([5.0, 1.0, 3.0, 7.0], 2) == [1, 0, 0, 1]
    assert into_bins([0.0] * 9 + [1.0], 4) == [0] * 9 + [3]

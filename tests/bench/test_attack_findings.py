"""The conclusions of the attacks' bench from its measurements."""

import random

import pytest

from bench.attacks.findings import distinguish, guess_deviation, guess_p_value


def test_what_never_overlaps_is_distinguished_with_certainty():
    found = distinguish(suspected=[0.1 + n / 1000 for n in range(50)], unrelated=[0.2 + n / 1000 for n in range(50)])
    assert found.auc == 1.0
    assert found.p_value < 1e-20


def test_the_wrong_way_round_is_distinguished_as_well():
    found = distinguish(suspected=[3.0, 4.0, 5.0], unrelated=[0.0, 1.0, 2.0])
    assert found.auc == 0.0


def test_the_same_distribution_is_not_distinguished():
    rng = random.Random(7)
    found = distinguish([rng.gauss(1, 0.1) for _ in range(500)], [rng.gauss(1, 0.1) for _ in range(500)])
    assert found.auc == pytest.approx(0.5, abs=0.05)
    assert found.p_value > 0.05


def test_guesses_deviate_as_much_as_is_said():
    rng = random.Random(7)
    guesses = [
        distinguish([rng.random() for _ in range(50)], [rng.random() for _ in range(50)]).auc for _ in range(300)
    ]
    within = sum(abs(auc - 0.5) <= 1.96 * guess_deviation(50) for auc in guesses) / len(guesses)
    assert within == pytest.approx(0.95, abs=0.03)


def test_equal_values_leak_nothing():
    assert distinguish([1.0] * 20, [1.0] * 20).auc == 0.5


def test_the_shape_alone_shows_in_the_p_value_where_the_auc_is_that_of_a_guess():
    rng = random.Random(7)
    found = distinguish([rng.gauss(1, 0.01) for _ in range(500)], [rng.gauss(1, 0.3) for _ in range(500)])
    assert found.auc == pytest.approx(0.5, abs=0.05)
    assert found.p_value < 0.001


@pytest.mark.parametrize(("suspected", "unrelated"), [([], [1.0]), ([1.0], [])])
def test_without_samples_there_is_no_finding(suspected, unrelated):
    with pytest.raises(ValueError, match="nothing was measured"):
        distinguish(suspected, unrelated)


def test_one_that_is_always_right_or_always_wrong_does_not_guess():
    assert guess_p_value(50, 50) == guess_p_value(0, 50) < 1e-10
    assert guess_p_value(25, 50) == 1.0
    with pytest.raises(ValueError, match="nothing was guessed"):
        guess_p_value(0, 0)

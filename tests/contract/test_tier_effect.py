"""When a tier returns too little to a zone: windows, thresholds, hysteresis."""

import pytest

from tenantzone_contract.reports.tier_effect import (
    EFFECTIVE_FROM,
    INEFFECTIVE_BELOW,
    MIN_CHUNKS,
    VALID_SECONDS,
    WINDOW_SECONDS,
    TierEffect,
    TierWindow,
)


class Life:
    """A zone that offers and loads chunks, one window after another."""

    def __init__(self) -> None:
        self.effect = TierEffect(0.0)
        self.now = 0.0
        self.offered = self.loaded = 0

    def window(self, offered: int, loaded: int) -> bool:
        """The judgement at the end of one more window with these chunks offered and loaded."""
        self.now += WINDOW_SECONDS
        self.offered += offered
        self.loaded += loaded
        self.effect.count(self.offered, self.loaded, self.now)
        return self.effect.is_ineffective(self.now)


def test_at_first_nothing_is_judged():
    effect = TierEffect(0.0)
    effect.count(10_000, 0, WINDOW_SECONDS - 1)
    assert effect.last(WINDOW_SECONDS - 1) is None
    assert not effect.is_ineffective(WINDOW_SECONDS - 1)


def test_it_is_ineffective_below_one_threshold_and_effective_again_from_the_other():
    between = int(1000 * (INEFFECTIVE_BELOW + EFFECTIVE_FROM) / 2)
    life = Life()
    assert not life.window(1000, between)
    assert not life.window(1000, int(1000 * INEFFECTIVE_BELOW))
    assert life.window(1000, int(1000 * INEFFECTIVE_BELOW) - 1)
    assert life.window(1000, between)
    assert not life.window(1000, int(1000 * EFFECTIVE_FROM))
    assert not life.window(1000, between)


def test_a_window_goes_on_until_there_is_enough_in_it():
    life = Life()
    assert not life.window(MIN_CHUNKS - 1, 0)
    assert life.effect.last(life.now) is None
    assert life.window(1, 0)
    assert life.effect.last(life.now) == TierWindow(MIN_CHUNKS, 0)


def test_a_judgement_ends_when_nothing_more_is_offered():
    life = Life()
    assert life.window(1000, 0)
    assert life.effect.is_ineffective(life.now + VALID_SECONDS - 1)
    assert not life.effect.is_ineffective(life.now + VALID_SECONDS)
    assert life.effect.last(life.now + VALID_SECONDS) is None


@pytest.mark.parametrize(("window", "ratio"), [(TierWindow(0, 0), 0.0), (TierWindow(200, 50), 0.25)])
def test_the_ratio_is_of_what_was_offered(window: TierWindow, ratio: float):
    assert window.ratio == ratio

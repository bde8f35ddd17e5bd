"""How well an attacker can distinguish two sets of samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binomtest, ks_2samp, mannwhitneyu


@dataclass(frozen=True, slots=True)
class Distinction:
    """How well two sets of samples can be distinguished."""

    auc: float
    """Probability that a sample of the first set is below a sample of the second set, from the Mann-Whitney U; 0.5 is a
    guess, and 1 is certainty."""
    p_value: float
    """P-value of the Kolmogorov-Smirnov test, the probability of such different sets from the same distribution."""


def distinguish(suspected: Sequence[float], unrelated: Sequence[float]) -> Distinction:
    """Measure how well two sets of samples can be distinguished.

    Args:
        suspected: the values measured if the attacker's suspicion is true, which are low if the channel leaks.
        unrelated: the values measured if the suspicion is false.

    Raises:
        ValueError: a set is empty.
    """
    if not suspected or not unrelated:
        raise ValueError("nothing was measured on one side")
    pairs = len(suspected) * len(unrelated)
    below = float(mannwhitneyu(unrelated, suspected).statistic)
    return Distinction(auc=below / pairs, p_value=float(ks_2samp(suspected, unrelated).pvalue))


def guess_deviation(samples: int) -> float:
    """Returns the standard deviation of the AUC of two sets of ``samples`` samples from the same distribution."""
    return math.sqrt((2 * samples + 1) / (12 * samples * samples))


def guess_p_value(right: int, guesses: int) -> float:
    """Returns how likely a random guesser between two options is at least as far from half right.

    Raises:
        ValueError: there are no guesses.
    """
    if guesses < 1:
        raise ValueError("nothing was guessed")
    return float(binomtest(right, guesses).pvalue)

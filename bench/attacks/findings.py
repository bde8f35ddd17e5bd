"""What an attacker can tell apart by two sets of samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binomtest, ks_2samp, mannwhitneyu


@dataclass(frozen=True, slots=True)
class Distinction:
    """How well two sets of samples can be told apart."""

    auc: float
    """The probability that a sample of the first set is below one of the second: 0.5 is a guess, 1 is certainty.
    Of Mann and Whitney's U."""
    p_value: float
    """Of the two-sample test of Kolmogorov and Smirnov: how likely sets that differ so come from one distribution."""


def distinguish(suspected: Sequence[float], unrelated: Sequence[float]) -> Distinction:
    """Tell two sets of samples apart.

    Args:
        suspected: measured where a secret is as the attacker suspects, and so low if the suspicion shows.
        unrelated: measured where it is not.

    Raises:
        ValueError: a set is empty.
    """
    if not suspected or not unrelated:
        raise ValueError("nothing was measured on one side")
    pairs = len(suspected) * len(unrelated)
    below = float(mannwhitneyu(unrelated, suspected).statistic)
    return Distinction(auc=below / pairs, p_value=float(ks_2samp(suspected, unrelated).pvalue))


def guess_deviation(samples: int) -> float:
    """The standard deviation of the AUC of two sets of so many samples each that come from one distribution."""
    return math.sqrt((2 * samples + 1) / (12 * samples * samples))


def guess_p_value(right: int, guesses: int) -> float:
    """How likely somebody who guesses between two things is right so often, or so seldom.

    Raises:
        ValueError: there are no guesses.
    """
    if guesses < 1:
        raise ValueError("nothing was guessed")
    return float(binomtest(right, guesses).pvalue)

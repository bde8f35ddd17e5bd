"""Estimates the mutual information between an observation and a secret value, from pairs of both."""

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import log2

_PERMUTATIONS = 200


@dataclass(frozen=True, slots=True)
class Information:
    """An estimate of mutual information, in bits per pair."""

    bits: float
    """Plug-in estimate minus its bias, and at least 0."""
    plug_in: float
    """Mutual information of the observed frequencies, which is too high, especially with few pairs per value."""
    bias: float
    """Mean of the plug-in estimate after shuffling the secrets, so that observations reveal nothing."""
    p_value: float
    """Fraction of shuffled estimates that are at least as high; at least 1 / 201."""


def estimate(secrets: Sequence[Hashable], seen: Sequence[Hashable], seed: int = 0) -> Information:
    """Estimate how many bits each observation reveals about its secret.

    The bias is right for a channel that reveals little, like shuffled pairs. For a channel that reveals much, the
    estimate is too low, but by no more than the bias, which is reported with it. Pairs are assumed to be independent,
    so information from combining several pairs is not included.

    Args:
        secrets: the secret of each pair.
        seen: the observation of each pair; continuous values must be binned before.
        seed: the seed of the shuffling.

    Raises:
        ValueError: there are no pairs, or the numbers differ.
    """
    if not secrets or len(secrets) != len(seen):
        raise ValueError(f"{len(secrets)} secrets and {len(seen)} times something seen are no pairs")
    plug_in = _plug_in(secrets, seen)
    rng, shuffled = random.Random(seed), list(secrets)
    of_nothing = []
    for _ in range(_PERMUTATIONS):
        rng.shuffle(shuffled)
        of_nothing.append(_plug_in(shuffled, seen))
    bias = sum(of_nothing) / _PERMUTATIONS
    as_much = sum(each >= plug_in - 1e-12 for each in of_nothing)
    return Information(max(0.0, plug_in - bias), plug_in, bias, (1 + as_much) / (1 + _PERMUTATIONS))


def _plug_in(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    pairs = len(first)
    counts, of_first, of_second = Counter(zip(first, second, strict=True)), Counter(first), Counter(second)
    return sum(
        count / pairs * log2(count * pairs / (of_first[one] * of_second[other]))
        for (one, other), count in counts.items()
    )


def into_bins(values: Sequence[float], bins: int) -> list[int]:
    """Returns the bin of each value; bins have the same number of values, except that equal values share a bin."""
    edges = sorted(values)
    ends = [edges[len(edges) * number // bins - 1] for number in range(1, bins)]
    return [sum(value > end for end in ends) for value in values]

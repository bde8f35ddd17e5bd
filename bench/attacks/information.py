"""How much an observation reveals about a hidden value: mutual information, estimated from pairs of both."""

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import log2

_PERMUTATIONS = 200


@dataclass(frozen=True, slots=True)
class Information:
    """An estimate, in bits per pair."""

    bits: float
    """The plug-in estimate less its bias, and no less than 0."""
    plug_in: float
    """The mutual information of the pairs' own frequencies: too high, the more so the fewer pairs there are for each
    value."""
    bias: float
    """The mean of the plug-in estimate after the secrets were shuffled, so that nothing is revealed."""
    p_value: float
    """The part of shuffled estimates that are as high; at least 1 / 201."""


def estimate(secrets: Sequence[Hashable], seen: Sequence[Hashable], seed: int = 0) -> Information:
    """Estimate how many bits the observations reveal about the secrets, pair by pair.

    The bias is right for a channel that reveals little, like shuffled pairs. For one that reveals much, too much is
    subtracted, but no more than the bias, which is reported with it. Pairs are assumed to be independent: what several
    of them reveal together is left out.

    Args:
        secrets: of each pair.
        seen: of each pair; continuous values must be binned before.
        seed: of the shuffling.

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
    """Returns the bin of each value; bins hold equally many values, but equal values share a bin."""
    edges = sorted(values)
    ends = [edges[len(edges) * number // bins - 1] for number in range(1, bins)]
    return [sum(value > end for end in ends) for value in values]

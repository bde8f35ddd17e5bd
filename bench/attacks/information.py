"""How much one thing that is seen tells of another that is not: mutual information, estimated from pairs of both."""

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import log2

_PERMUTATIONS = 200


@dataclass(frozen=True, slots=True)
class Information:
    """What was estimated, in bits for each pair."""

    bits: float
    """The plug-in estimate less its bias, and no less than 0."""
    plug_in: float
    """The mutual information of the pairs' own frequencies: too high, the more so the fewer pairs there are for each
    value."""
    bias: float
    """The mean of the plug-in estimate after the secrets were shuffled, so that nothing is told of them."""
    p_value: float
    """How often a shuffled one came to as much; 1 / 201 at the least."""


def estimate(secrets: Sequence[Hashable], seen: Sequence[Hashable], seed: int = 0) -> Information:
    """Estimate how many bits what is seen tells of the secrets, pair by pair.

    The bias is right for a channel that tells little, which shuffled pairs are like. Of one that tells much, too much
    is taken off, but no more than the bias, which is told with it. Pairs are taken as independent of each other: what
    several of them tell together is left out.

    Args:
        secrets: of each pair.
        seen: of each pair; what is continuous has to be put into bins before.
        seed: of the shuffling.

    Raises:
        ValueError: there are no pairs, or not as many of one side.
    """
    if not secrets or len(secrets) != len(seen):
        raise ValueError(f"{len(secrets)} secrets and {len(seen)} times something seen are no pairs")
    plug_in = _plug_in(secrets, seen)
    dice, shuffled = random.Random(seed), list(secrets)
    of_nothing = []
    for _ in range(_PERMUTATIONS):
        dice.shuffle(shuffled)
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
    """Numbers of bins, each of which has as many of the values as another, but equal values are in one bin."""
    edges = sorted(values)
    ends = [edges[len(edges) * number // bins - 1] for number in range(1, bins)]
    return [sum(value > end for end in ends) for value in values]

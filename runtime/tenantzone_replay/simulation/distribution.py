"""Estimates quantiles of many numbers in little memory.

Numbers are counted in buckets whose bounds are powers of 1.02, so the relative error of a quantile is at most 1%. This
is the method of DDSketch (Masson et al., *DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error
Guarantees*, VLDB 2019).
"""

import math
from collections import Counter
from typing import Final

_BASE: Final = 1.02
_LEAST: Final = 1e-6
"""Smallest value that is counted. A smaller number, such as 0, is counted as if it were this value."""


class Distribution:
    """The distribution of non-negative numbers."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._counts: Counter[int] = Counter()

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self._counts[math.ceil(math.log(max(value, _LEAST), _BASE))] += 1

    def merge(self, other: "Distribution") -> None:
        """Add all numbers of another distribution."""
        self.count += other.count
        self.total += other.total
        self._counts.update(other._counts)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """Returns the quantile for ``part``, such as 0.99 for p99, or 0.0 if the distribution is empty."""
        rank = math.ceil(part * self.count)
        for power in sorted(self._counts):
            rank -= self._counts[power]
            if rank <= 0:
                # Return the value that has the same relative distance from both bounds of the bucket.
                return float(2 * _BASE**power / (_BASE + 1))
        return 0.0

    def curve(self) -> list[tuple[float, float]]:
        """Returns the cumulative distribution as pairs: a value, and the fraction of the numbers up to this value."""
        points, below = [], 0
        for power in sorted(self._counts):
            below += self._counts[power]
            points.append((float(2 * _BASE**power / (_BASE + 1)), below / self.count))
        return points

"""Quantiles of many numbers in little memory.

Numbers are counted by the power of 1.02 that they lie under, so that a quantile is at most one per cent off. (DDSketch:
Masson et al., *DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error Guarantees*, VLDB 2019.)
"""

import math
from collections import Counter
from typing import Final

_BASE: Final = 1.02
_LEAST: Final = 1e-6
"""The smallest value that is distinguished; smaller numbers count as this value."""


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
        """Add all numbers that another distribution has counted."""
        self.count += other.count
        self.total += other.total
        self._counts.update(other._counts)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """Returns the number that ``part`` of the numbers do not exceed; 0.0 if there are none."""
        rank = math.ceil(part * self.count)
        for power in sorted(self._counts):
            rank -= self._counts[power]
            if rank <= 0:
                # The middle, as a ratio, of the two powers that enclose it.
                return float(2 * _BASE**power / (_BASE + 1))
        return 0.0

    def curve(self) -> list[tuple[float, float]]:
        """Returns each counted value with the part of all numbers that do not exceed it."""
        points, below = [], 0
        for power in sorted(self._counts):
            below += self._counts[power]
            points.append((float(2 * _BASE**power / (_BASE + 1)), below / self.count))
        return points

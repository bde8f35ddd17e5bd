"""Histograms of durations, which count each value both in classic and in native buckets.

Classic buckets have readable upper bounds. The native buckets are those of a Prometheus native histogram: they grow by
a constant factor, so that a quantile is as exact at a millisecond as at a minute. Only non-empty buckets are kept.
Bucket ``i`` counts values above ``2 ** ((i - 1) / 8)`` and up to ``2 ** (i / 8)``. This is schema 3: each bound is
about 9 % above the previous one.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import frexp
from typing import Any, Final, Self, TypeVar

from tenantzone_runtime.zones.model.flat import put_mapping, take, take_mapping

BOUNDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0
)  # fmt: skip
"""Upper bounds of the classic buckets, in seconds, without infinity. They suit times from a step of a small model to
20 minutes in a queue."""

SCHEMA: Final = 3
ZERO_THRESHOLD: Final = 2.0**-20
"""Largest value that is counted as zero, about a microsecond."""

_STEPS: Final = tuple(2.0 ** (step / 2**SCHEMA - 1) for step in range(2**SCHEMA))
"""The bounds of native buckets from 0.5 up to, but not including, 1."""


Key = TypeVar("Key")
Number = TypeVar("Number", int, float)


@dataclass(slots=True)
class Histogram:
    """Counts of durations in seconds, which never decrease, by classic and by native buckets."""

    sum: float = 0.0
    zeros: int = 0
    """Number of values up to ``ZERO_THRESHOLD``."""
    classic: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """Number of values in each classic bucket. The last bucket counts values above the last of ``BOUNDS``."""
    native: dict[int, int] = field(default_factory=dict)
    """Number of values by bucket index, without empty buckets."""

    @property
    def count(self) -> int:
        return sum(self.classic)

    def observe(self, seconds: float) -> None:
        """Count one duration. A negative duration counts as 0."""
        seconds = max(0.0, seconds)
        self.sum += seconds
        self.classic[bisect_left(BOUNDS, seconds)] += 1
        if seconds <= ZERO_THRESHOLD:
            self.zeros += 1
            return
        fraction, exponent = frexp(seconds)
        index = bisect_left(_STEPS, fraction) + (exponent - 1) * 2**SCHEMA
        self.native[index] = self.native.get(index, 0) + 1

    def add_growth(self, newer: "Histogram", older: "Histogram") -> None:
        """Add the difference between two snapshots of another histogram to this histogram."""
        self.sum += newer.sum - older.sum
        self.zeros += newer.zeros - older.zeros
        for bucket, count in enumerate(newer.classic):
            self.classic[bucket] += count - older.classic[bucket]
        add_growth(self.native, newer.native, older.native)

    def put(self, values: list[Any]) -> None:
        """Append all counts to ``values``, from which :meth:`take` can make a copy later."""
        values += (self.sum, self.zeros)
        values += self.classic
        put_mapping(values, self.native)

    @classmethod
    def take(cls, values: Iterator[Any]) -> Self:
        total, zeros = take(values, 2)
        return cls(total, zeros, list(take(values, len(BOUNDS) + 1)), take_mapping(values))

    def catch_up(self, newer: "Histogram") -> None:
        """Update this copy to the current counts of the histogram that it was copied from."""
        self.sum, self.zeros = newer.sum, newer.zeros
        self.classic[:] = newer.classic
        self.native.update(newer.native)

    def copy(self) -> "Histogram":
        return Histogram(self.sum, self.zeros, self.classic.copy(), self.native.copy())


def add_growth(totals: dict[Key, Number], newer: dict[Key, Number], older: dict[Key, Number]) -> None:
    """Add to each key's total by how much the key's count grew between the snapshots ``older`` and ``newer``."""
    for key, count in newer.items():
        growth = count - older.get(key, 0)
        if growth:
            totals[key] = totals.get(key, 0) + growth

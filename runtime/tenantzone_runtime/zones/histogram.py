"""Histograms of durations: one count of each value, exported in two ways.

It exports classic buckets with readable upper bounds, and a Prometheus native histogram: buckets that grow by a
constant factor, so that a quantile is as exact at a millisecond as at a minute, and only non-empty ones are kept.
Bucket ``i`` holds values above ``2 ** ((i - 1) / 8)`` and up to ``2 ** (i / 8)``: schema 3, at most 9 % from one bound
to the next.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import frexp
from typing import Any, Final, Self, TypeVar

from tenantzone_runtime.zones.flat import put_mapping, take, take_mapping

BOUNDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0
)  # fmt: skip
"""Upper bounds of the classic buckets, in seconds; above the last one is infinity. Waits range from one step of a small
model to a night's queue."""

SCHEMA: Final = 3
ZERO_THRESHOLD: Final = 2.0**-20
"""Values up to this, about a microsecond, are counted as zero."""

_STEPS: Final = tuple(2.0 ** (step / 2**SCHEMA - 1) for step in range(2**SCHEMA))
"""The bounds of native buckets from 0.5 up to, but not including, 1."""


Key = TypeVar("Key")
Number = TypeVar("Number", int, float)


@dataclass(slots=True)
class Histogram:
    """Counts of durations in seconds, which never decrease, by classic and by native buckets."""

    sum: float = 0.0
    zeros: int = 0
    """The count of values up to ``ZERO_THRESHOLD``."""
    classic: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """The counts of values up to each of ``BOUNDS`` and above the previous one, then of those above the last."""
    native: dict[int, int] = field(default_factory=dict)
    """The counts by index, without empty buckets."""

    @property
    def count(self) -> int:
        return sum(self.classic)

    def observe(self, seconds: float) -> None:
        """Count one duration; a negative one is ignored."""
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
        """Add what another histogram has counted between two snapshots of it."""
        self.sum += newer.sum - older.sum
        self.zeros += newer.zeros - older.zeros
        for bucket, count in enumerate(newer.classic):
            self.classic[bucket] += count - older.classic[bucket]
        add_growth(self.native, newer.native, older.native)

    def put(self, values: list[Any]) -> None:
        """Append all counts to values from which :meth:`take` makes a copy."""
        values += (self.sum, self.zeros)
        values += self.classic
        put_mapping(values, self.native)

    @classmethod
    def take(cls, values: Iterator[Any]) -> Self:
        total, zeros = take(values, 2)
        return cls(total, zeros, list(take(values, len(BOUNDS) + 1)), take_mapping(values))

    def catch_up(self, newer: "Histogram") -> None:
        """Take over the counts of the histogram that this was copied from."""
        self.sum, self.zeros = newer.sum, newer.zeros
        self.classic[:] = newer.classic
        self.native.update(newer.native)

    def copy(self) -> "Histogram":
        return Histogram(self.sum, self.zeros, self.classic.copy(), self.native.copy())


def add_growth(totals: dict[Key, Number], newer: dict[Key, Number], older: dict[Key, Number]) -> None:
    """Add to each total the growth of the count under the same key between two snapshots."""
    for key, count in newer.items():
        growth = count - older.get(key, 0)
        if growth:
            totals[key] = totals.get(key, 0) + growth

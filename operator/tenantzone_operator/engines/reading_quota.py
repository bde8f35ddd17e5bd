"""Limits how much of the operator's time the engines of one namespace may use."""

import time
from collections.abc import Callable

BYTES_PER_SECOND = 8 * 2**20
"""A fraction of what one processor can read per second."""


class ReadingQuota:
    """The bytes that the engines of one namespace may send over time, for all its pools together.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid_at = float("-inf")
        """When reading everything so far would have ended at the granted rate, in seconds of the clock."""

    def spend(self, count: int) -> None:
        """Charge bytes that were read from an engine."""
        self._paid_at = max(self._paid_at, self._clock()) + count / BYTES_PER_SECOND

    def pause_seconds(self) -> float:
        """Returns the seconds to wait before engines of the namespace are asked again."""
        return max(0.0, self._paid_at - self._clock())

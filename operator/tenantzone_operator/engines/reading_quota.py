"""Limits the operator's CPU time for reading the reports of one namespace's engines."""

import time
from collections.abc import Callable

BYTES_PER_SECOND = 8 * 2**20
"""Maximum number of bytes per second for each namespace: a fraction of the bytes that one CPU core can parse."""


class ReadingQuota:
    """A rate limit on the bytes that the operator reads from all engines of one namespace.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid_at = float("-inf")
        """Time of the clock before which nothing more should be read, because the bytes read so far use up the rate."""

    def spend(self, count: int) -> None:
        """Charge bytes that were read from an engine."""
        self._paid_at = max(self._paid_at, self._clock()) + count / BYTES_PER_SECOND

    def pause_seconds(self) -> float:
        """Returns the seconds to wait before the next poll of the namespace's engines."""
        return max(0.0, self._paid_at - self._clock())

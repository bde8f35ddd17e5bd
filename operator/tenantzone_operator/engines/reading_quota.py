"""How much of the operator's time the engines of one namespace may have."""

import time
from collections.abc import Callable

BYTES_PER_SECOND = 8 * 2**20
"""A fraction of what one processor reads in that time."""


class ReadingQuota:
    """The bytes that the engines of one namespace may send over time, for all pools of the namespace together.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid_at = float("-inf")
        """When all that was read would have been read, at the rate that is granted."""

    def spend(self, count: int) -> None:
        """Count bytes that were read from an engine."""
        self._paid_at = max(self._paid_at, self._clock()) + count / BYTES_PER_SECOND

    def pause_seconds(self) -> float:
        """How long to wait before engines of the namespace are asked again."""
        return max(0.0, self._paid_at - self._clock())

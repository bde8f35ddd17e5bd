"""How much of the operator's time the engines of one namespace may have."""

import time
from collections.abc import Callable

BYTES_PER_SECOND = 8 * 2**20
"""A fraction of what one processor reads in that time."""


class ReadingQuota:
    """What the engines of one namespace send, over time. All pools of the namespace share it.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid_at = float("-inf")
        """When all that was read would have been read, at the rate that is granted."""

    def spend(self, count: int) -> None:
        """So many bytes were read."""
        self._paid_at = max(self._paid_at, self._clock()) + count / BYTES_PER_SECOND

    def pause_seconds(self) -> float:
        """How long to wait before more is asked for."""
        return max(0.0, self._paid_at - self._clock())

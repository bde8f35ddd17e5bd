"""The safety margin below a latency bound of steps, so that hardly any step exceeds the bound.

Prediction errors of step times depend on the engine and its load. So the margin is chosen from the ratio of actual to
predicted time of the last steps, such that about one step in a hundred took longer than the margin allows.
"""

from bisect import bisect_left, insort
from collections import deque
from typing import Final

STEPS: Final = 200
"""Number of steps from which the margin is computed."""
EXCEEDED: Final = 2
"""Number of the last steps that may take longer than the margin allows."""
NARROWEST: Final = 0.02
WIDEST: Final = 0.3
_FIRST: Final = 0.05
"""Margin until enough steps were observed."""


class Margin:
    """The fraction of a bound that is left unused."""

    def __init__(self) -> None:
        self.share = _FIRST
        self._ratios: deque[float] = deque()
        self._sorted: list[float] = []

    def observe(self, ratio: float) -> None:
        """Learns from a step that was filled up to its bound.

        Args:
            ratio: actual duration of the step, divided by the predicted duration.
        """
        self._ratios.append(ratio)
        insort(self._sorted, ratio)
        if len(self._ratios) > STEPS:
            del self._sorted[bisect_left(self._sorted, self._ratios.popleft())]
        if len(self._ratios) == STEPS:
            self.share = min(max(1.0 - 1.0 / self._sorted[-1 - EXCEEDED], NARROWEST), WIDEST)

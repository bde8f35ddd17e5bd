"""How much of a bound on steps stays unused, so that hardly any step exceeds it.

Predictions of step times are wrong by an amount that depends on the engine and its load. So the margin follows from
what the last steps took compared with their predictions: about one in a hundred took longer than the margin allows.
"""

from bisect import bisect_left, insort
from collections import deque
from typing import Final

STEPS: Final = 200
"""The margin follows from this number of steps."""
EXCEEDED: Final = 2
"""The number of them that may take longer than the margin allows."""
NARROWEST: Final = 0.02
WIDEST: Final = 0.3
_FIRST: Final = 0.05
"""The margin before enough steps are known."""


class Margin:
    """The fraction of a bound that is left unused."""

    def __init__(self) -> None:
        self.share = _FIRST
        self._ratios: deque[float] = deque()
        self._sorted: list[float] = []

    def observe(self, ratio: float) -> None:
        """Learns from a step that was filled up to its bound.

        Args:
            ratio: the time that it took, divided by its prediction.
        """
        self._ratios.append(ratio)
        insort(self._sorted, ratio)
        if len(self._ratios) > STEPS:
            del self._sorted[bisect_left(self._sorted, self._ratios.popleft())]
        if len(self._ratios) == STEPS:
            self.share = min(max(1.0 - 1.0 / self._sorted[-1 - EXCEEDED], NARROWEST), WIDEST)

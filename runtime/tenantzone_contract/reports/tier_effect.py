"""Decides whether a tier is effective for a zone, by the ratio of loaded to offered chunks.

Engines and the zone's condition use the same rule.
"""

from dataclasses import dataclass
from typing import Final

WINDOW_SECONDS: Final = 600.0
"""Minimum duration of a window. A window is extended until `MIN_CHUNKS` chunks were offered."""
MIN_CHUNKS: Final = 64
"""Minimum number of chunks offered in a window, because fewer chunks are not significant."""
VALID_SECONDS: Final = 3 * WINDOW_SECONDS
"""Time for which a result stays valid if the zone offers no more chunks."""
INEFFECTIVE_BELOW: Final = 0.05
"""Ratio of loaded to offered chunks below which a tier becomes ineffective for a zone."""
EFFECTIVE_FROM: Final = 0.1
"""Ratio of loaded to offered chunks from which a tier becomes effective again."""


@dataclass(frozen=True, slots=True)
class TierWindow:
    """The numbers of chunks that a zone offered to a tier and loaded from it in one window."""

    offered: int
    """Number of chunks that were stored, or would have been stored without the zone's admission terms."""
    loaded: int

    @property
    def ratio(self) -> float:
        """Number of loaded chunks per offered chunk; 0 if no chunk was offered."""
        return self.loaded / self.offered if self.offered else 0.0

    def is_ineffective(self, was_ineffective: bool) -> bool:
        """Returns whether the tier is ineffective. ``was_ineffective``, the last window's result, gives hysteresis."""
        return self.ratio < (EFFECTIVE_FROM if was_ineffective else INEFFECTIVE_BELOW)


class TierEffect:
    """Decides for one zone and one tier, window by window, whether the tier is effective.

    An ineffective tier may admit fewer chunks (``Auto``). Chunks that were not admitted still count as offered.
    Otherwise, the strict admission would itself raise the ratio until the tier is effective, and so end.

    Args:
        now: the time at which the first window begins, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._began = now
        self._before = TierWindow(0, 0)
        self._is_ineffective = False
        self._last: TierWindow | None = None

    def count(self, offered: int, loaded: int, now: float) -> None:
        """Update the counts, and evaluate the current window if it has ended.

        Args:
            offered: the number of chunks offered since the zone was added.
            loaded: the number of chunks loaded since the zone was added.
            now: the time in seconds.
        """
        window = TierWindow(offered - self._before.offered, loaded - self._before.loaded)
        if now - self._began < WINDOW_SECONDS or window.offered < MIN_CHUNKS:
            return
        self._is_ineffective = window.is_ineffective(self._is_ineffective)
        self._last = window
        # The next window begins where this one ends.
        self._began, self._before = now, TierWindow(offered, loaded)

    def last(self, now: float) -> TierWindow | None:
        """Returns the last completed window, or None if no window ended within the last `VALID_SECONDS`."""
        return self._last if now - self._began < VALID_SECONDS else None

    def is_ineffective(self, now: float) -> bool:
        """Returns whether the tier is ineffective for the zone; False if no valid result exists."""
        return self._is_ineffective and self.last(now) is not None

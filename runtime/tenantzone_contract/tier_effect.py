"""Whether a zone loads enough of what it stores in a tier: the rule of engines and of the condition."""

from dataclasses import dataclass
from typing import Final

WINDOW_SECONDS: Final = 600.0
"""The least duration of one window, in seconds; it is longer while too little was offered in it."""
MIN_CHUNKS: Final = 64
"""The least number of chunks offered in a window: fewer are not significant."""
VALID_SECONDS: Final = 3 * WINDOW_SECONDS
"""How long a judgement holds if the zone offers nothing more, in seconds."""
INEFFECTIVE_BELOW: Final = 0.05
"""The ratio of loaded to offered chunks below which a tier becomes ineffective for a zone."""
EFFECTIVE_FROM: Final = 0.1
"""The ratio from which the tier is effective again."""


@dataclass(frozen=True, slots=True)
class TierWindow:
    """How a zone used a tier in one window, in chunks."""

    offered: int
    """The chunks that were stored, or not stored only because of the zone's admission terms."""
    loaded: int

    @property
    def ratio(self) -> float:
        """The chunks loaded per chunk offered."""
        return self.loaded / self.offered if self.offered else 0.0

    def is_ineffective(self, was_ineffective: bool) -> bool:
        """Returns whether the tier is ineffective, with hysteresis by the result of the previous window."""
        return self.ratio < (EFFECTIVE_FROM if was_ineffective else INEFFECTIVE_BELOW)


class TierEffect:
    """Judges one zone in one tier, window by window.

    Chunks that were not admitted count as offered, so that the judgement does not depend on the admission terms:
    otherwise these would end as soon as they worked.

    Args:
        now: the time at which the first window begins, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._began = now
        self._before = TierWindow(0, 0)
        self._is_ineffective = False
        self._last: TierWindow | None = None

    def count(self, offered: int, loaded: int, now: float) -> None:
        """Note what was offered and loaded so far, and judge the window if it is over.

        Args:
            offered: the chunks offered since the zone was added.
            loaded: the chunks loaded since the zone was added.
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
        """Returns the last window that was judged; None if there was none, or if it is too long ago."""
        return self._last if now - self._began < VALID_SECONDS else None

    def is_ineffective(self, now: float) -> bool:
        """Returns whether the zone loads too little from the tier."""
        return self._is_ineffective and self.last(now) is not None

"""Whether a tier gives a zone back enough of what the zone stores there: the rule of engines and of the condition."""

from dataclasses import dataclass
from typing import Final

WINDOW_SECONDS: Final = 600.0
"""Of one judgement; a window is longer while too little was offered in it."""
MIN_CHUNKS: Final = 64
"""That are offered in a window, at least: fewer say nothing."""
VALID_SECONDS: Final = 3 * WINDOW_SECONDS
"""For which a judgement holds if the zone offers nothing more."""
INEFFECTIVE_BELOW: Final = 0.05
"""The ratio of what is loaded to what is offered below which a tier becomes ineffective for a zone, ..."""
EFFECTIVE_FROM: Final = 0.1
"""... and from which it is effective again."""


@dataclass(frozen=True, slots=True)
class TierWindow:
    """What a zone used of a tier in one window, in chunks."""

    offered: int
    """Chunks that were stored, and those that were not stored because of the zone's terms of admission only."""
    loaded: int

    @property
    def ratio(self) -> float:
        """Chunks loaded for each one that was offered."""
        return self.loaded / self.offered if self.offered else 0.0

    def is_ineffective(self, was_ineffective: bool) -> bool:
        """Whether the tier is ineffective, with hysteresis: by whether it was until this window."""
        return self.ratio < (EFFECTIVE_FROM if was_ineffective else INEFFECTIVE_BELOW)


class TierEffect:
    """Judges one zone in one tier, window by window.

    What was not admitted counts as offered, so that the judgement does not depend on the terms of admission: otherwise
    these would end as soon as they worked.

    Args:
        now: the time at which the first window begins, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._began = now
        self._before = TierWindow(0, 0)
        self._is_ineffective = False
        self._last: TierWindow | None = None

    def count(self, offered: int, loaded: int, now: float) -> None:
        """Note what was offered and loaded by now, and judge the window if it is over.

        Args:
            offered: chunks since the zone came.
            loaded: the same.
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
        """The last window that was judged; None: there was none, or it is too long ago."""
        return self._last if now - self._began < VALID_SECONDS else None

    def is_ineffective(self, now: float) -> bool:
        """Whether the tier gives back less than it should."""
        return self._is_ineffective and self.last(now) is not None

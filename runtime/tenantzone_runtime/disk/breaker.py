"""A circuit breaker: what keeps failing is left alone for a while, and then tried with one transfer."""

import logging
import time
from dataclasses import dataclass
from typing import Final

logger = logging.getLogger(__name__)

FAILURES: Final = 5
"""In a row, after which it opens."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 8.0
"""Soon after a disk is back it is used again."""


@dataclass(slots=True)
class Breaker:
    """One of one disk, for one way. Times are of any clock that does not run backwards, in seconds."""

    longest_pause: float = LONGEST_PAUSE_SECONDS
    way: str = "transfers"
    """What it is of, for people."""
    openings: int = 0
    """How often it opened, or stayed open after a try."""
    error: str = ""
    """Why the last one that failed did."""
    _failures: int = 0
    _pause: float = 0.0
    _closed_from: float = 0.0
    _is_tried: bool = False

    @property
    def is_open(self) -> bool:
        """Whether transfers fail; one is tried now and then."""
        return bool(self._pause)

    def is_due(self, now: float) -> bool:
        """Whether a transfer may begin; whoever begins one asks :meth:`allows`."""
        return not self._pause or now >= self._closed_from

    def allows(self, now: float) -> bool:
        """Whether a transfer may begin. When it is open one may after each pause, and that one is tried by asking."""
        if not self.is_due(now):
            return False
        if self._pause:
            self._closed_from = now + self._pause
            self._is_tried = True
        return True

    def succeeded(self) -> None:
        """A transfer has ended well."""
        if self._pause:
            logger.info("The disk tier's %s work again", self.way)
        self._failures = 0
        self._pause = 0.0
        self._is_tried = False

    def note(self, error: Exception, doing: str) -> None:
        """Something could not be done now; the first time in a row, that is logged."""
        if not self._failures:
            logger.warning("The disk tier could not %s: %s", doing, error)
        self.failed(time.monotonic(), str(error))

    def failed(self, now: float, error: str = "", *, at_once: bool = False) -> None:
        """A transfer has failed; ``at_once`` opens whatever went before, for one that held somebody up."""
        self._failures += 1
        self.error = error
        if self._pause and not self._is_tried:
            # It began before those failed that opened it, and says no more than they did.
            return
        self._is_tried = False
        if at_once or self._pause or self._failures >= FAILURES:
            self._pause = min(max(FIRST_PAUSE_SECONDS, 2 * self._pause), self.longest_pause)
            self._closed_from = now + self._pause
            self.openings += 1

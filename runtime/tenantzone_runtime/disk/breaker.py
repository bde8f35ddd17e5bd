"""A circuit breaker: it stops the use of a failing service for some time, and then allows one transfer as a probe."""

import logging
import time
from dataclasses import dataclass
from typing import Final

logger = logging.getLogger(__name__)

FAILURES: Final = 5
"""Number of consecutive failures after which the breaker opens."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 8.0
"""Maximum pause. It is short, so that a recovered service is soon used again."""


@dataclass(slots=True)
class Breaker:
    """The circuit breaker of one service, such as reads of a disk. All times are monotonic, in seconds."""

    longest_pause: float = LONGEST_PAUSE_SECONDS
    service: str = "The disk tier's transfers"
    """Name of the protected operations in log messages."""
    openings: int = 0
    """Number of times that the breaker opened, plus the number of failed probes."""
    error: str = ""
    """Error message of the last failure."""
    _failures: int = 0
    _pause: float = 0.0
    _closed_from: float = 0.0
    _is_tried: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open because transfers failed. An open breaker permits only periodic probes."""
        return bool(self._pause)

    def is_due(self, now: float) -> bool:
        """Returns whether a transfer may begin, without changing anything. To begin a transfer, call :meth:`allows`."""
        return not self._pause or now >= self._closed_from

    def allows(self, now: float) -> bool:
        """Returns whether the caller may begin a transfer now.

        While the breaker is open, this method returns True once after each pause. The caller's transfer is the probe.
        """
        if not self.is_due(now):
            return False
        if self._pause:
            self._closed_from = now + self._pause
            self._is_tried = True
        return True

    def succeeded(self) -> None:
        """Record a successful transfer."""
        if self._pause:
            logger.info("%s work again", self.service)
        self._failures = 0
        self._pause = 0.0
        self._is_tried = False

    def note(self, error: Exception, doing: str) -> None:
        """Record a failed disk operation. Only the first of consecutive failures is logged.

        Args:
            error: the error of the operation.
            doing: the operation for the log message, such as "write a chunk".
        """
        if not self._failures:
            logger.warning("The disk tier could not %s: %s", doing, error)
        self.failed(time.monotonic(), str(error))

    def failed(self, now: float, error: str = "", *, at_once: bool = False) -> None:
        """Record a failed transfer. If ``at_once``, open the breaker now, because the transfer blocked a caller."""
        self._failures += 1
        self.error = error
        if self._pause and not self._is_tried:
            # No probe is in progress, so this transfer began before the breaker opened. Its failure must not extend
            # the pause.
            return
        self._is_tried = False
        if at_once or self._pause or self._failures >= FAILURES:
            self._pause = min(max(FIRST_PAUSE_SECONDS, 2 * self._pause), self.longest_pause)
            self._closed_from = now + self._pause
            self.openings += 1

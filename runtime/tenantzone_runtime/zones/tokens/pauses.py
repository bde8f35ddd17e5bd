"""The pauses between a zone's requests, which show whether another request may arrive soon."""

from collections import deque
from math import inf
from typing import Final

KNOWN_AFTER: Final = 100
"""Number of pauses after which the longest one is used. About 1 % of all pauses are longer."""


class Pauses:
    """The last pauses of one zone; times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.longest = inf
        """Duration of the longest recent pause in seconds; infinite while too few pauses were observed."""
        self._since: float | None = None
        """Time at which the current pause began; None if the zone has requests."""
        self._seconds: deque[float] = deque(maxlen=KNOWN_AFTER)

    def begin(self, since: float) -> None:
        """Notes that the zone has had no requests since a time; may be called again for the same pause."""
        self._since = since

    def end(self, now: float) -> None:
        """Notes that the zone has requests, and ends its pause, if there is one."""
        if self._since is not None:
            self._seconds.append(now - self._since)
            self._since = None
            if len(self._seconds) == KNOWN_AFTER:
                self.longest = max(self._seconds)

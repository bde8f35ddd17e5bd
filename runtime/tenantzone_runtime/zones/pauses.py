"""The pauses that a zone makes between its requests, which tell whether another request may still come soon."""

from collections import deque
from math import inf
from typing import Final

KNOWN_AFTER: Final = 100
"""Pauses after which the longest of them counts: one pause in a hundred is longer, as a 99th percentile allows."""


class Pauses:
    """The last pauses of one zone."""

    def __init__(self) -> None:
        self._since: float | None = None
        """When the present pause began; None: the zone has requests."""
        self._seconds: deque[float] = deque(maxlen=KNOWN_AFTER)
        self._longest = inf

    @property
    def longest(self) -> float:
        """Seconds of the longest of the last pauses; infinite as long as too few are known."""
        return self._longest

    def note(self, now: float, *, since: float | None) -> None:
        """Notes that the zone has requests, or for how long it has had none.

        Args:
            now: seconds of the monotonic clock.
            since: when its last request ended; None: it has requests.
        """
        if since is None and self._since is not None:
            self._seconds.append(now - self._since)
            if len(self._seconds) == KNOWN_AFTER:
                self._longest = max(self._seconds)
        self._since = since

"""The pauses between a zone's requests: whether another request may still come soon."""

from collections import deque
from math import inf
from typing import Final

KNOWN_AFTER: Final = 100
"""Pauses after which the longest of them counts: one pause in a hundred is longer, as a 99th percentile allows."""


class Pauses:
    """The last pauses of one zone; times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.longest = inf
        """Seconds of the longest of the last pauses; infinite as long as too few are known."""
        self._since: float | None = None
        """When the present pause began; None: the zone has requests."""
        self._seconds: deque[float] = deque(maxlen=KNOWN_AFTER)

    def begin(self, since: float) -> None:
        """Notes that the zone has had no requests since then; the pause may have been noted already."""
        self._since = since

    def end(self, now: float) -> None:
        """Notes that the zone has requests; no pause need have begun."""
        if self._since is not None:
            self._seconds.append(now - self._since)
            self._since = None
            if len(self._seconds) == KNOWN_AFTER:
                self.longest = max(self._seconds)

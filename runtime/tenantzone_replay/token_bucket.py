"""A token bucket before an engine: what a tenant asks for beyond its rate waits at the door.

(Turner, *New Directions in Communications*, IEEE Communications Magazine 24(10), 1986.)
"""

import math


class TokenBucket:
    """One tenant's.

    Args:
        rate: tokens a second.
        depth: tokens that may be saved, and be asked for at once.
    """

    def __init__(self, rate: float, depth: float) -> None:
        self._rate = rate
        self._depth = depth
        self._saved = depth
        self._filled = 0.0
        """Until when; later than a request's arrival where others of its tenant still wait."""

    def passes_at(self, arrival: float, tokens: int) -> float:
        """When a request that comes now may go on; what asks for more than the depth goes when that is full.

        Where nothing ever flows in, that is never: ``math.inf``.
        """
        if not self._rate:
            return math.inf
        now = max(arrival, self._filled)
        self._saved = min(self._depth, self._saved + (now - self._filled) * self._rate)
        missing = min(tokens, self._depth) - self._saved
        if missing > 0:
            now += missing / self._rate
            self._saved += missing
        self._saved = max(0.0, self._saved - tokens)
        self._filled = now
        return now

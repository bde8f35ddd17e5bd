"""A token bucket in front of an engine: requests beyond a tenant's rate wait in the frontend.

(Turner, *New Directions in Communications*, IEEE Communications Magazine 24(10), 1986.)
"""

import math


class TokenBucket:
    """The token bucket of one tenant.

    Args:
        rate: tokens per second.
        depth: the most tokens that can be saved and used at once.
    """

    def __init__(self, rate: float, depth: float) -> None:
        self._rate = rate
        self._depth = depth
        self._saved = depth
        self._filled = 0.0
        """The time up to which tokens are spent; later than a request's arrival if others of its tenant still wait."""

    def passes_at(self, arrival: float, tokens: int) -> float:
        """Returns when a request that arrives now may proceed; one larger than the depth waits for a full bucket.

        With a rate of 0 that is never: ``math.inf``.
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

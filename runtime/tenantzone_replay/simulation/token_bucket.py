"""A token bucket, which makes requests beyond a tenant's rate wait in the frontend.

(Turner, *New Directions in Communications*, IEEE Communications Magazine 24(10), 1986.)
"""

import math


class TokenBucket:
    """The token bucket of one tenant.

    Args:
        rate: the number of tokens that the bucket gains per second.
        depth: the maximum number of tokens in the bucket.
    """

    def __init__(self, rate: float, depth: float) -> None:
        self._rate = rate
        self._depth = depth
        self._saved = depth
        self._filled = 0.0
        """Time up to which the bucket was refilled. It lies in the future while an earlier request waits for tokens."""

    def passes_at(self, arrival: float, tokens: int) -> float:
        """Returns the time at which a request may proceed, and takes its tokens out of the bucket.

        A request that is larger than the depth waits until the bucket is full. If the rate is 0, no request may ever
        proceed, and the time is ``math.inf``.
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

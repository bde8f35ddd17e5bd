"""A zone's queue: how many requests may wait in it, and how long clients should back off if it is full.

A request waits from its arrival until it is first scheduled; preempted requests do not count. The service rate is
the number of requests that left the queue, divided by the time in which any request waited. Other time does not count,
because a zone with little demand is not slow. After each WINDOW_SECONDS, values count less by a factor of e.
"""

from dataclasses import dataclass
from math import ceil, exp
from typing import Final

from tenantzone_contract.zone_config.zone_terms import QueueBounds

WINDOW_SECONDS: Final = 10.0
"""Decay time of the estimate, in seconds with waiting requests."""

MIN_RETRY_SECONDS: Final = 1
MAX_RETRY_SECONDS: Final = 60
"""Maximum Retry-After. A queue can't be predicted beyond a minute, and OpenAI's clients ignore longer times."""
MAX_CLOSED_SECONDS: Final = 1.0
"""Maximum time for which requests are refused without a check. It is short, because waiting clients may disconnect."""


@dataclass(slots=True, eq=False)
class Queue:
    """The zone's requests that wait to be scheduled for the first time, and the recent service rate."""

    requests: int = 0
    tokens: int = 0
    """Number of prompt tokens of the waiting requests."""
    _looked_at: float = 0.0
    _seconds: float = 0.0
    """Seconds with waiting requests, with exponential decay. The next two fields count what was served in this time."""
    _served_requests: float = 0.0
    _served_tokens: float = 0.0

    def enter(self, tokens: int, now: float) -> None:
        """Add a request with a prompt of ``tokens`` tokens."""
        self._let_time_pass(now)
        self.requests += 1
        self.tokens += tokens

    def leave(self, tokens: int, now: float, *, is_served: bool) -> None:
        """Remove a request because it was scheduled (``is_served``) or has ended."""
        self._let_time_pass(now)
        self.requests -= 1
        self.tokens -= tokens
        if is_served:
            self._served_requests += 1
            self._served_tokens += tokens

    def has_room(self, bounds: QueueBounds, tokens: int) -> bool:
        """Whether a request with ``tokens`` prompt tokens may join the queue. Any request may join an empty queue."""
        return not self.requests or not (
            _is_beyond(bounds.requests, self.requests + 1) or _is_beyond(bounds.tokens, self.tokens + tokens)
        )

    def retry_after(self, bounds: QueueBounds, now: float) -> int:
        """Returns the Retry-After of a refused request, in whole seconds: the time to serve the current queue."""
        return max(MIN_RETRY_SECONDS, min(MAX_RETRY_SECONDS, ceil(self._seconds_to_serve(bounds, now))))

    def closed_seconds(self, bounds: QueueBounds, now: float) -> float:
        """Returns the seconds for which requests to a full queue can be refused without another check.

        This is a small fraction of the time to serve the current queue, so that the queue never runs empty.
        """
        return min(MAX_CLOSED_SECONDS, self._seconds_to_serve(bounds, now) / 8)

    def _seconds_to_serve(self, bounds: QueueBounds, now: float) -> float:
        """Returns the estimated seconds to serve the current queue, at the recent service rate.

        One estimate is by requests, the other by tokens. An estimate counts only if the queue bounds the number of
        these. The longer estimate is returned, or 0 if there is none. One served request is added, so that the rate is
        defined even if none was served yet.
        """
        self._let_time_pass(now)
        by_requests = self.requests * self._seconds / (self._served_requests + 1)
        mean = self.tokens / self.requests if self.requests else 0.0
        by_tokens = self.tokens * self._seconds / (self._served_tokens + mean) if self.tokens else 0.0
        bounded = [
            seconds
            for bound, seconds in ((bounds.requests, by_requests), (bounds.tokens, by_tokens))
            if bound is not None
        ]
        return max(bounded, default=0.0)

    def _let_time_pass(self, now: float) -> None:
        if self.requests and now > self._looked_at:
            kept = exp((self._looked_at - now) / WINDOW_SECONDS)
            self._seconds = self._seconds * kept + WINDOW_SECONDS * (1 - kept)
            self._served_requests *= kept
            self._served_tokens *= kept
        self._looked_at = now


def _is_beyond(bound: int | None, amount: int) -> bool:
    return bound is not None and amount > bound

"""A zone's queue: how much may wait in it, and how long a client that finds it full should back off.

A request waits from its arrival until it is first scheduled; a preempted request does not count. The rate of service
is estimated from requests that have left the queue, over the time in which any waited: a zone with little demand is not
slow. Values WINDOW_SECONDS ago count a third, those twice as long ago a ninth.
"""

from dataclasses import dataclass
from math import ceil, exp
from typing import Final

WINDOW_SECONDS: Final = 10.0
"""The decay time of the estimate, in seconds with waiting requests."""

MIN_RETRY_SECONDS: Final = 1
MAX_RETRY_SECONDS: Final = 60
"""A queue can't be predicted beyond a minute, and OpenAI's clients ignore a longer time."""
MAX_CLOSED_SECONDS: Final = 1.0
"""Queues do not only change by service: clients disconnect, and their requests leave."""


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The most that a zone's queue may hold in this engine; None: no bound."""

    requests: int | None = None
    tokens: int | None = None
    """The tokens of their prompts."""


UNBOUNDED: Final = QueueBounds()


@dataclass(slots=True, eq=False)
class Queue:
    """The zone's requests that wait to be scheduled for the first time, and the recent rate of service."""

    requests: int = 0
    tokens: int = 0
    """The tokens of their prompts."""
    _looked_at: float = 0.0
    _seconds: float = 0.0
    """Seconds with waiting requests, and what was served in them, with exponential decay."""
    _served_requests: float = 0.0
    _served_tokens: float = 0.0

    def enter(self, tokens: int, now: float) -> None:
        """Let a request with a prompt of ``tokens`` tokens wait."""
        self._let_time_pass(now)
        self.requests += 1
        self.tokens += tokens

    def leave(self, tokens: int, now: float, *, is_served: bool) -> None:
        """Remove a request that was scheduled, or has ended before."""
        self._let_time_pass(now)
        self.requests -= 1
        self.tokens -= tokens
        if is_served:
            self._served_requests += 1
            self._served_tokens += tokens

    def has_room(self, bounds: QueueBounds, tokens: int) -> bool:
        """Whether a request of ``tokens`` tokens may wait, too. In an empty queue any request may."""
        return not self.requests or not (
            _is_beyond(bounds.requests, self.requests + 1) or _is_beyond(bounds.tokens, self.tokens + tokens)
        )

    def retry_after(self, bounds: QueueBounds, now: float) -> int:
        """Returns the whole seconds after which a refused client should retry: until all that waits now is served."""
        return max(MIN_RETRY_SECONDS, min(MAX_RETRY_SECONDS, ceil(self._seconds_to_serve(bounds, now))))

    def closed_seconds(self, bounds: QueueBounds, now: float) -> float:
        """Returns the seconds for which requests to a full queue can be refused without another check.

        It is a small part of the time in which the present queue is served, so that the queue never runs empty.
        """
        return min(MAX_CLOSED_SECONDS, self._seconds_to_serve(bounds, now) / 8)

    def _seconds_to_serve(self, bounds: QueueBounds, now: float) -> float:
        """Returns the seconds in which the present queue is served, at the recent rate of requests and of tokens.

        The slower of the bounded ones counts. One more than was served is counted, so that a queue that has served
        nothing yet has a rate, too.
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

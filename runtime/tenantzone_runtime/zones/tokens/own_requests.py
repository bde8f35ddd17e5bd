"""Statistics of the requests of one zone with a latency target."""

from collections import deque
from math import inf
from typing import Final

from tenantzone_runtime.zones.model.zone import Zone

KNOWN_AFTER: Final = 100
"""Number of recent pauses from which the longest one is taken. About 1 % of all pauses are longer than that."""


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


_WEIGHT: Final = 1 / 8
"""Weight of a new value in an exponential moving average."""


class OwnRequests:
    """The recent pauses, prompts and hits of one zone."""

    def __init__(self) -> None:
        self.pauses = Pauses()
        self.first_token_seconds = 0.0
        """Predicted duration of a step that computes only the zone's next prompts."""
        self.prefill_seconds = 0.0
        """Time that all simultaneously waiting prompts of the zone would add to one step."""
        self.hit_share = 0.0
        """Fraction of the tokens of the zone's recent prompts that was found cached."""
        self._prompt_tokens = 0
        self._hit_tokens = 0

    def note_prompts(self, first_token: float, prefill: float) -> None:
        """Notes the waiting prompts.

        Args:
            first_token: predicted seconds of a step that computes only waiting prompts, as many as fit.
            prefill: seconds that all waiting prompts would add to one step.
        """
        known = self.first_token_seconds
        self.first_token_seconds = known + (first_token - known) * _WEIGHT if known else first_token
        self.prefill_seconds += (prefill - self.prefill_seconds) * _WEIGHT

    def look_at(self, zone: Zone, now: float) -> None:
        """Notes whether the zone pauses, and which part of the prompts admitted since the last call was cached.

        Args:
            zone: the zone.
            now: current time in seconds of the monotonic clock.
        """
        if not zone.requests:
            self.pauses.begin(zone.last_active)
            return
        self.pauses.end(now)
        prompt, hit = zone.counters.prompt_tokens, zone.counters.prefix_hit_tokens
        if prompt > self._prompt_tokens:
            share = (hit - self._hit_tokens) / (prompt - self._prompt_tokens)
            self.hit_share += (min(max(share, 0.0), 1.0) - self.hit_share) * _WEIGHT
            self._prompt_tokens, self._hit_tokens = prompt, hit

"""Statistics of the requests of one zone with a latency target."""

from typing import Final

from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tokens.pauses import Pauses

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

"""Statistics of the requests of one zone with a latency target."""

from typing import Final

from tenantzone_runtime.zones.pauses import Pauses
from tenantzone_runtime.zones.zone import Zone

_WEIGHT: Final = 1 / 8
"""The weight of a new value in a running mean."""


class OwnRequests:
    """The recent pauses, prompts and hits of one zone."""

    def __init__(self) -> None:
        self.pauses = Pauses()
        self.first_token_seconds = 0.0
        """The predicted time of a step that computes the zone's next prompts and nothing else."""
        self.prefill_seconds = 0.0
        """What the zone's prompts that wait at the same time would add to one step."""
        self.hit_share = 0.0
        """The part of the zone's prompts that was found cached."""
        self._prompt_tokens = 0
        self._hit_tokens = 0

    def note_prompts(self, first_token: float, prefill: float) -> None:
        """Notes the prompts that wait.

        Args:
            first_token: the predicted seconds of a step that computes as many of them as fit, and nothing else.
            prefill: what all of them would add to one step, in seconds.
        """
        known = self.first_token_seconds
        self.first_token_seconds = known + (first_token - known) * _WEIGHT if known else first_token
        self.prefill_seconds += (prefill - self.prefill_seconds) * _WEIGHT

    def look_at(self, zone: Zone, now: float) -> None:
        """Notes whether the zone pauses, and what was found cached of the prompts that were admitted meanwhile.

        Args:
            zone: whose requests these are.
            now: seconds of the monotonic clock.
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

"""Counts, for a request's zone, how the request's tokens were processed. Each token counts in exactly one way.

A request's tokens have positions, starting at 0. A *stay* of a request is the time from an admission to its next
preemption or its end. A stay begins after the tokens that were found in the prefix cache or loaded from a tier, and
continues token by token. Tokens below the furthest position that the request ever reached had been lost, so they count
as recomputed. All other tokens count as computed for the first time. So only positions must be stored, and steps need
not update the counters.

Rejected drafts never change a position. They are counted separately.
"""

from dataclasses import dataclass
from typing import Final, Literal

from tenantzone_runtime.zones.model.counters import Counters

ProcessedAs = Literal["computed_first", "recomputed", "draft_rejected", "loaded", "hit"]
"""How a token was processed. computed_first: a step computed the token, and the request had never reached its
position before. recomputed: a step computed the token again after a preemption. draft_rejected: a step computed the
token as a draft, which was rejected. loaded: a tier had the token. hit: the prefix cache had the token.
"""

COUNTERS: Final[dict[ProcessedAs, str]] = {
    "computed_first": "computed_first_tokens",
    "recomputed": "recomputed_tokens",
    "draft_rejected": "rejected_draft_tokens",
    "loaded": "loaded_tokens",
    "hit": "hit_tokens",
}
"""The names of the counters in :class:`Counters`."""


@dataclass(slots=True)
class Progress:
    """The progress of one request. All positions are numbers of tokens."""

    counted: int | None = None
    """Position up to which the tokens of the current stay are counted; None if the request does not run."""
    furthest: int = 0
    """The furthest position that the request has ever reached, by computed, loaded or cached tokens."""

    def begin_stay(self, hits: int, loaded: int, counters: Counters) -> None:
        """Count the initial tokens of an admitted request.

        Args:
            hits: number of tokens that were found in the prefix cache.
            loaded: number of tokens after the hits that were loaded from a tier.
            counters: counters of the request's zone.
        """
        counters.hit_tokens += hits
        counters.loaded_tokens += loaded
        self.begin_uncounted(hits + loaded)

    def begin_uncounted(self, position: int) -> None:
        """Begin a stay at a position without counting how the request got there."""
        self.counted = position
        self.furthest = max(self.furthest, position)

    def computed_to(self, position: int, counters: Counters) -> None:
        """Count the tokens up to ``position`` that steps have computed in the current stay since the last call."""
        counted = self.counted
        if counted is None or position <= counted:
            return
        again = max(0, min(position, self.furthest) - counted)
        counters.recomputed_tokens += again
        counters.computed_first_tokens += position - counted - again
        self.counted = position
        self.furthest = max(self.furthest, position)

    def end_stay(self, position: int, dropped_drafts: int, counters: Counters) -> None:
        """Count the rest of the current stay; does nothing if the request does not run.

        Args:
            position: end of the stay, including tokens of steps in flight, without drafts.
            dropped_drafts: number of draft tokens of the steps in flight that were dropped without verification.
            counters: counters of the request's zone.
        """
        if self.counted is None:
            return
        self.computed_to(position, counters)
        counters.rejected_draft_tokens += dropped_drafts
        self.counted = None

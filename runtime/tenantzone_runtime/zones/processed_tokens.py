"""How the tokens of a request are processed: each of them in exactly one way, counted for its zone.

A request's tokens have positions, from 0 on. A *stay* is the time from an admission to the next preemption or to the
end. It begins after the tokens found in the prefix cache and loaded from a tier, and continues token by token. Tokens
that a stay computes below the furthest position that the request ever reached were lost: they are recomputed. All
others are computed for the first time. So only positions are stored, and a step costs nothing.

Rejected drafts never move a position. They are counted separately.
"""

from dataclasses import dataclass
from typing import Final, Literal

from tenantzone_runtime.zones.counters import Counters

ProcessedAs = Literal["computed_first", "recomputed", "draft_rejected", "loaded", "hit"]
"""How a token was processed. computed_first: a step computed it, and its request had not reached its position before.
recomputed: a step computed it although its request had reached its position before: a preemption had lost it.
draft_rejected: a step computed it as a draft, and it was not kept. loaded: a tier had it. hit: the prefix cache had it.
"""

COUNTERS: Final[dict[ProcessedAs, str]] = {
    "computed_first": "computed_first_tokens",
    "recomputed": "recomputed_tokens",
    "draft_rejected": "rejected_draft_tokens",
    "loaded": "loaded_tokens",
    "hit": "hit_tokens",
}
"""The name of each one's counter in :class:`Counters`."""


@dataclass(slots=True)
class Progress:
    """How far one request has come. All positions are numbers of tokens."""

    counted: int | None = None
    """The position up to which the present stay is counted; None: the request does not run."""
    furthest: int = 0
    """The furthest position that it has ever reached: computed, loaded or found."""

    def begin_stay(self, hits: int, loaded: int, counters: Counters) -> None:
        """Count the initial tokens of an admitted request.

        Args:
            hits: tokens that were found in the prefix cache.
            loaded: tokens after these that were loaded from a tier.
            counters: of its zone.
        """
        counters.hit_tokens += hits
        counters.loaded_tokens += loaded
        self.begin_uncounted(hits + loaded)

    def begin_uncounted(self, position: int) -> None:
        """Begin a stay at a position without counting how the request got there."""
        self.counted = position
        self.furthest = max(self.furthest, position)

    def computed_to(self, position: int, counters: Counters) -> None:
        """Count what steps have computed in the present stay since the last call, up to a position."""
        counted = self.counted
        if counted is None or position <= counted:
            return
        again = max(0, min(position, self.furthest) - counted)
        counters.recomputed_tokens += again
        counters.computed_first_tokens += position - counted - again
        self.counted = position
        self.furthest = max(self.furthest, position)

    def end_stay(self, position: int, dropped_drafts: int, counters: Counters) -> None:
        """Count the rest of the present stay; does nothing if the request does not run.

        Args:
            position: including the tokens of steps in flight, without drafts.
            dropped_drafts: drafted tokens of the steps in flight that were dropped without verification.
            counters: of its zone.
        """
        if self.counted is None:
            return
        self.computed_to(position, counters)
        counters.rejected_draft_tokens += dropped_drafts
        self.counted = None

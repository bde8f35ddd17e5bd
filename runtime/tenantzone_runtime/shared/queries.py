"""A request's query: how much of its prompt the storages have, and where."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from tenantzone_runtime.shared.answers import CacheLocations, Location
from tenantzone_runtime.shared.spaces import Space

_MOST_UNUSED: Final = 3
"""The maximum unused answers in a row: otherwise a lease that expires before it is used causes endless queries."""


class Finding(Enum):
    """What is known of a chunk."""

    MISS = auto()
    HIT = auto()
    WAIT = auto()
    """The manager was queried, and still has time to answer."""


@dataclass(eq=False, slots=True)
class Query:
    """One request's query and its answer. Times are monotonic, in seconds."""

    keys: Sequence[bytes]
    """The keys of its prompt from the beginning; the list grows with the answer."""
    asked: float | None = None
    """The time of the query; None if it was not sent yet."""
    deadline: float = 0.0
    space: Space | None = None
    """The space whose instance was queried; its contents are useless once the zone has another space."""
    is_pending: bool = False
    found: dict[bytes, list[Location]] = field(default_factory=dict)
    """The locations of each readable chunk."""
    hit: int = 0
    """The number of chunks of the prompt's beginning that were found, in a model with several groups."""
    until: float = 0.0
    """The time until which the found chunks can be read."""
    unused: int = 0
    """Consecutive answers that expired unused."""
    stored: bool = False
    """Whether the request has begun to store chunks, which marks its prompt as used."""
    writes: deque[Callable[[], None]] = field(default_factory=deque)
    """The write in progress and those to follow it: each needs what precedes it in the prompt."""
    has_caught_up: bool = False
    """Whether the missing beginning of its prompt was requested for storing, too."""
    is_given_up: bool = False
    """Whether a found chunk could not be loaded; answers that arrive later find nothing, either."""
    tried: set[str] = field(default_factory=set)
    """Failing storages that are probed with this request's current load."""
    context: Any = None
    """The caller's own identification of the request."""

    def must_ask(self, now: float) -> bool:
        """Returns whether there is no valid answer now."""
        if self.asked is None:
            return True
        is_over = not self.is_pending and bool(self.found) and now >= self.until
        return is_over and self.unused < _MOST_UNUSED

    @property
    def is_answered(self) -> bool:
        """Whether the manager has answered in time."""
        return not self.is_pending and self.until > 0.0

    def lacks(self, space: Space, chunks: int) -> bool:
        """Returns whether the manager has answered that a beginning of this many chunks is not completely there."""
        is_told = self.is_answered and self.space is space and not self.is_given_up
        return is_told and self.hit < chunks <= len(self.keys)

    def skip(self, now: float) -> None:
        """Record that no query is sent and nothing is found."""
        self.asked, self.found, self.hit, self.until = now, {}, 0, 0.0

    def begin(self, space: Space, now: float, budget: float) -> None:
        """Record that the query is sent."""
        self.space = space
        self.asked, self.deadline, self.is_pending = now, now + budget, True
        self.found, self.hit, self.until = {}, 0, 0.0
        self.unused += 1

    def give_up(self) -> None:
        """Drop the answer: a found chunk could not be loaded, and those after it are useless."""
        self.found, self.hit, self.is_given_up = {}, 0, True

    def is_believed(self, space: Space, now: float) -> bool:
        """Returns whether the found chunks are of this space and can still be read."""
        return self.space is space and now < self.until

    def is_late(self, now: float) -> bool:
        """Returns whether the deadline of a pending query has passed."""
        return self.is_pending and now >= self.deadline

    def end(self) -> None:
        """Stop waiting for an answer."""
        self.is_pending = False

    def answer(self, keys: Sequence[bytes], locations: CacheLocations) -> None:
        """Record the manager's answer for these keys, in this order."""
        assert self.asked is not None, "who is answered has asked"
        self.is_pending = False
        if self.is_given_up:
            return
        self.until = self.asked + locations.lease_seconds
        self.found = {
            key: block.locations for key, block in zip(keys, locations.blocks, strict=False) if block.locations
        }
        self.hit = locations.matched_blocks

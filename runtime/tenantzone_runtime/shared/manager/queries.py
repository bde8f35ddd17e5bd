"""A request's query for the chunks of its prompt that storages have, and for their locations."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from tenantzone_runtime.shared.manager.answers import CacheLocations, Location
from tenantzone_runtime.shared.spaces import Space

_MOST_UNUSED: Final = 3
"""Maximum number of consecutive unused answers. Otherwise, a lease that always expires too early would cause endless
queries."""


class Finding(Enum):
    """The state of knowledge about a chunk."""

    MISS = auto()
    HIT = auto()
    WAIT = auto()
    """The manager was queried, and still has time to answer."""


@dataclass(eq=False, slots=True)
class Query:
    """One request's query and its answer. Times are monotonic, in seconds."""

    keys: Sequence[bytes]
    """Keys of the request's prompt from the beginning. The list grows with the answer."""
    asked: float | None = None
    """Time of the query; None if it was not sent yet."""
    deadline: float = 0.0
    space: Space | None = None
    """The space whose instance was queried. The answer is useless once the zone has another space."""
    is_pending: bool = False
    found: dict[bytes, list[Location]] = field(default_factory=dict)
    """The locations of each readable chunk."""
    hit: int = 0
    """Number of chunks at the beginning of the prompt that were found, for a model with several groups."""
    until: float = 0.0
    """Time until which the found chunks can be read."""
    unused: int = 0
    """Number of consecutive answers that expired unused."""
    stored: bool = False
    """Whether the request has begun to store chunks, which marks its prompt as used."""
    writes: deque[Callable[[], None]] = field(default_factory=deque)
    """The write in progress, and the writes after it, which run in order, because each needs the chunks before it."""
    has_caught_up: bool = False
    """Whether the missing beginning of the prompt was reported as a gap, to be stored as well."""
    is_given_up: bool = False
    """Whether a found chunk could not be loaded. Later answers are then ignored."""
    tried: set[str] = field(default_factory=set)
    """Failing storages that are probed by this request's current load."""
    context: Any = None
    """Any object by which the caller identifies the request."""

    def must_ask(self, now: float) -> bool:
        """Returns whether the query must be sent, because there is no valid answer."""
        if self.asked is None:
            return True
        is_over = not self.is_pending and bool(self.found) and now >= self.until
        return is_over and self.unused < _MOST_UNUSED

    @property
    def is_answered(self) -> bool:
        """Whether the manager has answered in time."""
        return not self.is_pending and self.until > 0.0

    def lacks(self, space: Space, chunks: int) -> bool:
        """Returns whether the manager has answered that the first ``chunks`` chunks are not completely stored."""
        is_told = self.is_answered and self.space is space and not self.is_given_up
        return is_told and self.hit < chunks <= len(self.keys)

    def skip(self, now: float) -> None:
        """Record that no query is sent, so that no chunk is found."""
        self.asked, self.found, self.hit, self.until = now, {}, 0, 0.0

    def begin(self, space: Space, now: float, budget: float) -> None:
        """Record that the query is sent."""
        self.space = space
        self.asked, self.deadline, self.is_pending = now, now + budget, True
        self.found, self.hit, self.until = {}, 0, 0.0
        self.unused += 1

    def give_up(self) -> None:
        """Drop the answer, because a found chunk could not be loaded, and all chunks after it are useless."""
        self.found, self.hit, self.is_given_up = {}, 0, True

    def is_believed(self, space: Space, now: float) -> bool:
        """Returns whether the found chunks belong to this space and can still be read."""
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

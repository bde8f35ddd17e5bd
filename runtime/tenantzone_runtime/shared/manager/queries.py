"""A request's query to the manager: which chunks of the prompt are in storages, and where."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from tenantzone_runtime.shared.manager.answers import CacheLocations, Location
from tenantzone_runtime.shared.spaces import Space

_MOST_UNUSED: Final = 3
"""Maximum number of consecutive answers that expire unused, so that leases that are always too short do not cause
endless queries."""


class Finding(Enum):
    """The result of looking for a chunk in the storages."""

    MISS = auto()
    HIT = auto()
    WAIT = auto()
    """The manager was queried, and may still answer in time."""


@dataclass(eq=False, slots=True)
class Query:
    """One request's query and its answer. Times are monotonic, in seconds."""

    keys: Sequence[bytes]
    """Keys of the chunks of the request's tokens, in order. The list grows as the request generates tokens."""
    asked: float | None = None
    """Time at which the query was sent or skipped; None before."""
    deadline: float = 0.0
    """Time after which no caller waits for the answer."""
    space: Space | None = None
    """The space whose instance was queried. If the zone gets another space, the answer is not used."""
    is_pending: bool = False
    """Whether the query was sent, was not answered yet, and has not ended."""
    found: dict[bytes, list[Location]] = field(default_factory=dict)
    """The locations of each chunk that can be read, by key."""
    hit: int = 0
    """Number of chunks at the beginning of the prompt that were found, for a model with several KV cache groups."""
    until: float = 0.0
    """Time until which the found chunks can be read."""
    unused: int = 0
    """Number of consecutive answers that were not used."""
    stored: bool = False
    """Whether the request has begun to store chunks. A store marks the prompt as used in the manager."""
    writes: deque[Callable[[], None]] = field(default_factory=deque)
    """Functions that each start one write. The first write is in progress. The others wait, because a write needs the
    chunks of earlier writes."""
    has_caught_up: bool = False
    """Whether the missing beginning of the prompt was already reported as a gap."""
    is_given_up: bool = False
    """Whether a found chunk could not be loaded. Later answers are then ignored."""
    tried: set[str] = field(default_factory=set)
    """Names of failing storages that this request's current load probes."""
    context: Any = None
    """An object with which the caller identifies the request."""

    def must_ask(self, now: float) -> bool:
        """Returns whether the query must be sent, because it was never sent or its answer has expired."""
        if self.asked is None:
            return True
        is_over = not self.is_pending and bool(self.found) and now >= self.until
        return is_over and self.unused < _MOST_UNUSED

    @property
    def is_answered(self) -> bool:
        """Whether the manager has answered in time."""
        return not self.is_pending and self.until > 0.0

    def lacks(self, space: Space, chunks: int) -> bool:
        """Returns whether the manager has answered that some of the first ``chunks`` chunks are not stored."""
        is_told = self.is_answered and self.space is space and not self.is_given_up
        return is_told and self.hit < chunks <= len(self.keys)

    def skip(self, now: float) -> None:
        """Record that no query is sent, so that no chunk is found."""
        self.asked, self.found, self.hit, self.until = now, {}, 0, 0.0

    def begin(self, space: Space, now: float, budget: float) -> None:
        """Record that the query is sent now, with a time budget in seconds."""
        self.space = space
        self.asked, self.deadline, self.is_pending = now, now + budget, True
        self.found, self.hit, self.until = {}, 0, 0.0
        self.unused += 1

    def give_up(self) -> None:
        """Drop the answer. Called when a found chunk could not be loaded, so that all chunks after it are useless."""
        self.found, self.hit, self.is_given_up = {}, 0, True

    def is_believed(self, space: Space, now: float) -> bool:
        """Returns whether the answer is for this space, and the found chunks can still be read."""
        return self.space is space and now < self.until

    def is_late(self, now: float) -> bool:
        """Returns whether the deadline of a pending query has passed."""
        return self.is_pending and now >= self.deadline

    def end(self) -> None:
        """Stop waiting for an answer."""
        self.is_pending = False

    def answer(self, keys: Sequence[bytes], locations: CacheLocations) -> None:
        """Record the manager's answer. ``keys`` has the keys of the blocks in the answer, in the same order."""
        assert self.asked is not None, "a query must be sent before it is answered"
        self.is_pending = False
        if self.is_given_up:
            return
        self.until = self.asked + locations.lease_seconds
        self.found = {
            key: block.locations for key, block in zip(keys, locations.blocks, strict=False) if block.locations
        }
        self.hit = locations.matched_blocks

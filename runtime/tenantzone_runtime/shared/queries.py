"""One question for each request: how much of its prompt the storages have, and where."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from tenantzone_runtime.shared.answers import CacheLocations, Location
from tenantzone_runtime.shared.spaces import Space

_MOST_UNUSED: Final = 3
"""Answers in a row: a lease that is always over before anybody looks would have a request ask for ever."""


class Finding(Enum):
    """What is known of a chunk."""

    MISS = auto()
    HIT = auto()
    WAIT = auto()
    """The manager was asked, and still has time to answer."""


@dataclass(eq=False, slots=True)
class Query:
    """What one request asks, and what it was told. Times are of a monotonic clock, in seconds."""

    keys: Sequence[bytes]
    """Of its prompt from the beginning; the list grows with the answer."""
    asked: float | None = None
    """When; None: not yet."""
    deadline: float = 0.0
    space: Space | None = None
    """Whose instance was asked about; what it has is of no use any more when the zone has another."""
    is_pending: bool = False
    found: dict[bytes, list[Location]] = field(default_factory=dict)
    """Where each chunk can be read."""
    hit: int = 0
    """How many chunks long the prompt's beginning is that was found, in a model with several groups."""
    until: float = 0.0
    """For how long what was found can be read."""
    unused: int = 0
    """Answers in a row in which nothing was found before they were too old."""
    stored: bool = False
    """Whether the request has begun to store something, by which its prompt counts as used."""
    writes: deque[Callable[[], None]] = field(default_factory=deque)
    """What of it is being written, and what is to be after that: each needs what comes before it in the prompt."""
    has_caught_up: bool = False
    """Whether its prompt's beginning was asked for to be stored, too."""
    is_given_up: bool = False
    """Whether something that was found could not be loaded; what is still being asked finds nothing, either."""
    tried: set[str] = field(default_factory=set)
    """Storages that fail, and are tried with what this request loads now."""
    context: Any = None
    """Of whoever asks: what he knows the request by."""

    def must_ask(self, now: float) -> bool:
        """Whether nothing is known that may be believed now."""
        if self.asked is None:
            return True
        is_over = not self.is_pending and bool(self.found) and now >= self.until
        return is_over and self.unused < _MOST_UNUSED

    @property
    def is_answered(self) -> bool:
        """Whether the manager has said what there is, in time."""
        return not self.is_pending and self.until > 0.0

    def lacks(self, space: Space, chunks: int) -> bool:
        """Whether the manager has said that a beginning so many chunks long is not there with all that it needs."""
        is_told = self.is_answered and self.space is space and not self.is_given_up
        return is_told and self.hit < chunks <= len(self.keys)

    def skip(self, now: float) -> None:
        """It is not asked, and nothing is found."""
        self.asked, self.found, self.hit, self.until = now, {}, 0, 0.0

    def begin(self, space: Space, now: float, budget: float) -> None:
        """It is being asked."""
        self.space = space
        self.asked, self.deadline, self.is_pending = now, now + budget, True
        self.found, self.hit, self.until = {}, 0, 0.0
        self.unused += 1

    def give_up(self) -> None:
        """Find no more: something that was found could not be loaded, and what follows it is of no use."""
        self.found, self.hit, self.is_given_up = {}, 0, True

    def is_believed(self, space: Space, now: float) -> bool:
        """Whether what was found can still be read, and is of this space."""
        return self.space is space and now < self.until

    def is_late(self, now: float) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.is_pending and now >= self.deadline

    def end(self) -> None:
        """Nothing more is waited for."""
        self.is_pending = False

    def answer(self, keys: Sequence[bytes], told: CacheLocations) -> None:
        """Take what the manager has said of these keys, in this order."""
        assert self.asked is not None, "who is answered has asked"
        self.is_pending = False
        if self.is_given_up:
            return
        self.until = self.asked + told.lease_seconds
        self.found = {key: block.locations for key, block in zip(keys, told.blocks, strict=False) if block.locations}
        self.hit = told.matched_blocks

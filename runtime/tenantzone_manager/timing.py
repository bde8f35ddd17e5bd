"""How long reads and writes may take, what follows for what is removed, and the clock that both go by."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ORPHAN_GRACE_SECONDS: Final = 600.0
"""For how long an object without a record is left alone."""


_SAME_SECONDS: Final = 0.5
"""By which a clock that was not set differs from what it said before, at most."""
_PATIENCE_SECONDS: Final = 60.0


def _since_boot() -> float:
    """Seconds of a clock that is never set, and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Unix time that follows the system's clock, when that was set, only after a minute in which it was not set again.

    So a clock that jumps ahead and comes back leaves no deadline hours away.

    Args:
        wall: Unix time, as the system's clock has it.
        monotonic: seconds of a clock that is never set.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = _since_boot) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()
        self._other_offset = self._offset
        """That the system's clock has had since it was set."""
        self._set_at = 0.0

    def __call__(self) -> float:
        now = self._monotonic()
        offset = self._wall() - now
        if abs(offset - self._other_offset) > _SAME_SECONDS:
            self._set_at = now
        self._other_offset = offset
        is_set = abs(offset - self._offset) > _SAME_SECONDS
        if not is_set or now >= self._set_at + _PATIENCE_SECONDS:
            self._offset = offset
        return now + self._offset


@dataclass(frozen=True, slots=True)
class Timing:
    """All in seconds."""

    lease: float = 10.0
    """Whoever was given a location may read it for so long: nothing that it was given goes before."""
    write: float = 60.0
    """A writer that says nothing else is taken for dead after so long."""
    longest_write: float = 3600.0
    clock_skew: float = 1.0
    """By which the clocks of managers may differ."""

    def unread_from(self, now: float, staleness: float) -> float:
        """From when on nobody reads what ceases to serve now.

        Another manager may go on to give it out for a while (``staleness``), and the last one that gets it has a lease.
        """
        return now + staleness + self.lease + self.clock_skew

    def latest(self, now: float, staleness: float) -> float:
        """The latest deadline that anything can have by now; who has noted a later one had a wrong clock."""
        return self.unread_from(now, staleness) + max(self.write, self.longest_write)

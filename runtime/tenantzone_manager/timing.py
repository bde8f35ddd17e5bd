"""Time limits of reads and writes, the resulting deletion times, and the clock that both use."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ORPHAN_GRACE_SECONDS: Final = 600.0
"""The age in seconds up to which an object without a record is kept."""


_SAME_SECONDS: Final = 0.5
"""The largest drift in seconds of a clock that was not set."""
_PATIENCE_SECONDS: Final = 60.0


def _since_boot() -> float:
    """Returns the seconds of a monotonic clock that also runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Unix time that adopts a change of the system's clock only once the clock was not set again for a minute.

    So a clock that jumps ahead and comes back leaves no deadline hours away.

    Args:
        wall: returns the Unix time of the system's clock.
        monotonic: returns the seconds of a monotonic clock.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = _since_boot) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()
        self._other_offset = self._offset
        """The offset of the system's clock since it was last set."""
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
    """Time limits, in seconds."""

    lease: float = 10.0
    """How long a reader may use a location that it was given: its bytes are not deleted before."""
    write: float = 60.0
    """The default time after which a writer is presumed dead."""
    longest_write: float = 3600.0
    clock_skew: float = 1.0
    """The most that the clocks of managers may differ."""

    def unread_from(self, now: float, staleness: float) -> float:
        """Returns the Unix time from which no reader uses a location that ceases to serve now.

        Another manager may still return it for a while (``staleness``), and the last reader that gets it has a lease.
        """
        return now + staleness + self.lease + self.clock_skew

    def latest(self, now: float, staleness: float) -> float:
        """Returns the latest valid deadline; a later one was set by a manager with a wrong clock."""
        return self.unread_from(now, staleness) + max(self.write, self.longest_write)

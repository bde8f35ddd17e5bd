"""Time limits of reads and writes, the deletion times that follow from the limits, and the manager's clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ORPHAN_GRACE_SECONDS: Final = 600.0
"""Minimum age in seconds of an object without a record before the orphan scan removes it."""


_SAME_SECONDS: Final = 0.5
"""Maximum change in seconds that counts as clock drift. A larger change means that the system's clock was set."""
_PATIENCE_SECONDS: Final = 60.0


def _since_boot() -> float:
    """Returns the seconds of a monotonic clock that also runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """A Unix clock that follows a jump of the system's clock only after one minute without another jump.

    Therefore, a system clock that jumps ahead and is soon set back does not cause deadlines hours in the future.

    Args:
        wall: returns the Unix time of the system's clock.
        monotonic: returns the seconds of a monotonic clock.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = _since_boot) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()
        self._other_offset = self._offset
        """Offset of the system's clock from the monotonic clock at the last call."""
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
    """Time for which a reader may use the locations in an answer. The bytes of the locations are kept for that long."""
    write: float = 60.0
    """Default time after which a writer is presumed dead."""
    longest_write: float = 3600.0
    """Maximum time after which a writer is presumed dead."""
    clock_skew: float = 1.0
    """Maximum difference between the clocks of managers."""

    def unread_from(self, now: float, staleness: float) -> float:
        """Returns the Unix time after which no reader uses a location that is taken out of service now.

        Args:
            now: current Unix time.
            staleness: seconds for which other managers may still return the location and thereby begin a lease.
        """
        return now + staleness + self.lease + self.clock_skew

    def latest(self, now: float, staleness: float) -> float:
        """Returns the latest plausible deadline. A manager with a wrong clock may have set a later deadline."""
        return self.unread_from(now, staleness) + max(self.write, self.longest_write)

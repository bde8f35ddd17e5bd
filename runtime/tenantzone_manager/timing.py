"""How long reads and writes may take, and what follows for what is removed."""

from dataclasses import dataclass
from typing import Final

ORPHAN_GRACE_SECONDS: Final = 600.0
"""For how long an object without a record is left alone."""


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

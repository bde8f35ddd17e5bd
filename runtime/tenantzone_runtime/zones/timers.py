"""Timers: which zones must be checked because time has passed, without checking all of them."""

from math import inf

from tenantzone_runtime.zones.deadlines import Deadlines
from tenantzone_runtime.zones.states import deadline
from tenantzone_runtime.zones.zone import Zone


class Timers(Deadlines):
    """The zones' timers, which may expire too early and never too late: then they are set again."""

    def set(self, zone: Zone, seen: float = -inf) -> None:
        """Have the zone checked when time alone changes something for it; times up to ``seen`` were checked."""
        moment = deadline(zone, seen)
        if moment is not None:
            self.set_at(zone, moment)

"""Timers: which zones are to be looked at because time has passed, without looking at all of them."""

from math import inf

from tenantzone_runtime.zones.deadlines import Deadlines
from tenantzone_runtime.zones.states import deadline
from tenantzone_runtime.zones.zone import Zone


class Timers(Deadlines):
    """The zones' timers, which may go off too early and never too late: then they are set again."""

    def set(self, zone: Zone, seen: float = -inf) -> None:
        """Have the zone looked at when time alone changes something for it; up to ``seen`` it was looked at."""
        moment = deadline(zone, seen)
        if moment is not None:
            self.set_at(zone, moment)

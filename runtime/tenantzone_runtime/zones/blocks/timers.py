"""Timers: find the zones that must be checked because time has passed, without checking all zones."""

from math import inf

from tenantzone_runtime.zones.blocks.deadlines import Deadlines
from tenantzone_runtime.zones.blocks.states import deadline
from tenantzone_runtime.zones.model.zone import Zone


class Timers(Deadlines):
    """The zones' timers. A timer may expire too early, and is then set again, but never expires too late."""

    def set(self, zone: Zone, seen: float = -inf) -> None:
        """Set the timer to the next time after ``seen`` at which the passing of time changes something for the zone."""
        moment = deadline(zone, seen)
        if moment is not None:
            self.set_at(zone, moment)

"""Timers: which zones are to be looked at because time has passed, without looking at all of them."""

import heapq
from collections.abc import Iterator
from math import inf

from tenantzone_runtime.zones.states import deadline
from tenantzone_runtime.zones.zone import Zone


class Timers:
    """The zones' timers, one each at most. One may go off too early, never too late: then it is set again."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Zone]] = []

    def set(self, zone: Zone, seen: float = -inf) -> None:
        """Look at the zone again when time alone changes something for it; up to ``seen`` it was looked at."""
        moment = deadline(zone, seen)
        if moment is not None:
            self.set_at(zone, moment)

    def set_at(self, zone: Zone, moment: float) -> None:
        """Look at the zone again at this time, or before."""
        if zone.timer is None or moment < zone.timer:
            zone.timer = moment
            heapq.heappush(self._heap, (moment, zone.number, zone))

    def gone_off(self, now: float) -> Iterator[Zone]:
        """Zones to look at now; whoever does sets their timers again."""
        while self._heap and self._heap[0][0] <= now:
            moment, _, zone = heapq.heappop(self._heap)
            if zone.timer == moment:
                zone.timer = None
                yield zone

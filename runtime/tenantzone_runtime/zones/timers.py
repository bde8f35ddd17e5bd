"""Timers: which zones are to be looked at because time has passed, without looking at all of them."""

import heapq
from collections.abc import Iterator
from math import inf
from typing import Final

from tenantzone_runtime.zones.states import deadline
from tenantzone_runtime.zones.zone import Zone

_FEW: Final = 64
"""Timers that are not worth tidying up."""


class Timers:
    """The zones' timers, one each at most, which may go off too early and never too late: then they are set again.

    Timers that were set anew or given up stay in the heap until their time has come, or until the heap has twice as
    many entries as there were timers when it was tidied up last: which costs each timer that is set the same, averaged.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Zone]] = []
        self._max_entries = _FEW

    def __len__(self) -> int:
        """The number of entries, those that are out of date among them."""
        return len(self._heap)

    def set(self, zone: Zone, seen: float = -inf) -> None:
        """Have the zone looked at when time alone changes something for it; up to ``seen`` it was looked at."""
        moment = deadline(zone, seen)
        if moment is not None:
            self.set_at(zone, moment)

    def set_at(self, zone: Zone, moment: float) -> None:
        """Have the zone looked at again at this time, or before."""
        if zone.timer is None or moment < zone.timer:
            zone.timer = moment
            heapq.heappush(self._heap, (moment, zone.number, zone))
            if len(self._heap) > self._max_entries:
                self._tidy_up()

    def gone_off(self, now: float) -> Iterator[Zone]:
        """Zones to look at now; whoever does sets their timers again."""
        while self._heap and self._heap[0][0] <= now:
            moment, _, zone = heapq.heappop(self._heap)
            if zone.timer == moment:
                zone.timer = None
                yield zone

    def _tidy_up(self) -> None:
        """Keep one entry for each zone that has a timer."""
        timers = {zone: moment for moment, _, zone in self._heap if zone.timer == moment}
        self._heap = [(moment, zone.number, zone) for zone, moment in timers.items()]
        heapq.heapify(self._heap)
        self._max_entries = max(_FEW, 2 * len(self._heap))

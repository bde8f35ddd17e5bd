"""Deadlines: the time at which each zone must be checked next, so that due zones are found without a full scan."""

import heapq
from collections.abc import Iterator
from typing import Final

from tenantzone_runtime.zones.model.zone import Zone

_FEW: Final = 64
"""Number of entries up to which a clean-up is not worthwhile."""


class Deadlines:
    """At most one deadline for each zone.

    The heap refers to zones by number, so that it does not keep them alive. An entry is stale if its zone has another
    deadline by now, or none. Stale entries are removed when their time has come, or when the heap has twice as many
    entries as there were deadlines at the last clean-up. So the amortized cost of a deadline is constant.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._deadlines: dict[int, tuple[float, Zone]] = {}
        self._max_entries = _FEW

    def __len__(self) -> int:
        """Number of entries, including stale ones."""
        return len(self._heap)

    def of(self, zone: Zone) -> float | None:
        """Returns the zone's deadline, or None if it has none."""
        moment, _ = self._deadlines.get(zone.number, (None, zone))
        return moment

    def set_at(self, zone: Zone, moment: float) -> None:
        """Set the zone's deadline, unless it has an earlier one."""
        earlier = self.of(zone)
        if earlier is None or moment < earlier:
            self._deadlines[zone.number] = moment, zone
            heapq.heappush(self._heap, (moment, zone.number))
            if len(self._heap) > self._max_entries:
                self._tidy_up()

    def forget(self, zone: Zone) -> None:
        """Remove the zone's deadline, if it has one."""
        self._deadlines.pop(zone.number, None)

    def pop_due(self, now: float) -> Iterator[Zone]:
        """Generate the zones with passed deadlines, and remove these deadlines. Callers may set new ones meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            moment, number = heapq.heappop(self._heap)
            deadline, zone = self._deadlines.get(number, (None, None))
            if zone is not None and deadline == moment:
                del self._deadlines[number]
                yield zone

    def _tidy_up(self) -> None:
        """Keep one entry for each deadline."""
        self._heap = [(moment, number) for number, (moment, _) in self._deadlines.items()]
        heapq.heapify(self._heap)
        self._max_entries = max(_FEW, 2 * len(self._heap))

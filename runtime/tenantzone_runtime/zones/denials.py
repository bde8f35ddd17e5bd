"""Waiting requests that were denied their blocks, and what would have to change for each.

A zone's next request that may not take its blocks need not be looked at again before something changes for it: what its
own zone holds or may hold (whoever changes that wakes it), or what all zones leave it together. Of the latter, each
request waits for a few sums to reach a bar; the bars are kept in heaps, one for each sum, so that a step looks at the
lowest bar of each and not at the requests. A bar may be too low, never too high: a request that is woken too early is
denied again.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.standings import Source
from tenantzone_runtime.zones.zone import Zone

_MIN_STALE = 64


@dataclass(slots=True)
class _Bars:
    """Zones by how high a sum must be for them, lowest first. Entries of zones that were woken since are stale."""

    heap: list[tuple[int, int, Zone]] = field(default_factory=list)
    limit: int = _MIN_STALE

    def push(self, bar: int, zone: Zone) -> None:
        if len(self.heap) >= self.limit:
            # Else they would pile up in a heap whose sum stays low.
            self.heap = [entry for entry in self.heap if entry[1] == entry[2].parked]
            heapq.heapify(self.heap)
            self.limit = max(_MIN_STALE, 2 * len(self.heap))
        heapq.heappush(self.heap, (bar, zone.parked, zone))

    def reached(self, height: int) -> Iterator[Zone]:
        """Zones whose bar is not above this height; they leave, and so do stale entries that have come to the top."""
        while self.heap:
            bar, ticket, zone = self.heap[0]
            is_stale = ticket != zone.parked
            if bar > height and not is_stale:
                return
            heapq.heappop(self.heap)
            if not is_stale:
                yield zone


class Denials:
    """The zones whose next request was denied, by what they wait for.

    Args:
        ledger: the zones.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._bars: dict[tuple[Source, int], _Bars] = {}
        """By source and priority; a reservation knows no priority."""
        self._headroom = _Bars()
        self._by_share: list[tuple[int, Zone]] = []
        """Denied because of their share of what nobody reserved."""
        self._share_seen = ledger.standings.share_changes
        self._tickets = 0

    def park(self, zone: Zone, count: int, peak: int, headroom: int) -> None:
        """The zone's next request was denied ``count`` blocks.

        Args:
            zone: whose.
            count: blocks.
            peak: of the request, at its longest.
            headroom: blocks that are to be there besides, and were missing.
        """
        self._tickets += 1
        zone.parked = self._tickets
        standings, own = self._ledger.standings, len(zone.cached)
        if zone.in_use + count > max(zone.spec.quota.limit, peak):
            return
        if headroom:
            # Whatever else is missing: before that is there, the request is denied.
            self._headroom.push(count + headroom, zone)
            return
        if zone.is_entitled_to(count):
            self._push("reservation", 0, count - own + zone.reclaimable, zone)
        if zone.overdue:
            return
        priority = zone.spec.priority
        if standings.may_have_relief(zone, count, peak):
            self._push("relief", priority, count - own - zone.locked + zone.reclaimable, zone)
        else:
            self._push("spare", priority, count - own - zone.locked + zone.evictable, zone)
            self._by_share.append((zone.parked, zone))

    def _push(self, source: Source, priority: int, bar: int, zone: Zone) -> None:
        key = source, priority
        bars = self._bars.get(key)
        if bars is None:
            bars = self._bars[key] = _Bars()
        bars.push(bar, zone)

    def due(self, free: int, *, is_running: bool) -> Iterator[Zone]:
        """Zones whose next request may be admissible now, as far as all zones together go.

        Args:
            free: blocks that are free now.
            is_running: whether requests run; else no headroom is asked for.
        """
        standings = self._ledger.standings
        for (source, priority), bars in list(self._bars.items()):
            if not bars.heap:
                del self._bars[source, priority]
                continue
            yield from bars.reached(standings.total(source, priority, free))
        yield from self._headroom.reached(free + self._ledger.cached_blocks if is_running else free + (1 << 60))
        if self._share_seen != standings.share_changes:
            self._share_seen = standings.share_changes
            waiting, self._by_share = self._by_share, []
            for ticket, zone in waiting:
                if ticket == zone.parked:
                    yield zone
        elif len(self._by_share) > 2 * len(self._ledger.zones) + _MIN_STALE:
            self._by_share = [entry for entry in self._by_share if entry[0] == entry[1].parked]

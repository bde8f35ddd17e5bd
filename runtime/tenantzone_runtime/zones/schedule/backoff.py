"""Backoff: a zone whose next request was denied blocks is not considered until a change may have made them available.

Two kinds of changes matter. The first are changes of the zone's own blocks or quota; the code that makes them wakes the
zone. The second are changes of the blocks that all zones together leave to it: for these, each zone waits until one of
a few sums reaches a threshold. If several thresholds are reached, only the zone with the least service is considered,
because once it has its blocks, the sums are lower, and the other zones continue to wait. A threshold may be too low,
but never too high: a request that is considered too early is denied again.
"""

import heapq
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import inf
from typing import Literal

from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.model.fair_queue import Account, Place, in_order
from tenantzone_runtime.zones.model.zone import Zone

_MIN_STALE = 64

_Name = Literal["spare", "surplus", "headroom", "share"]
"""headroom: all free and cached blocks. share: a zone's share of the unreserved blocks, for a weight of 1. The others
are as in ``totals.Source``."""
_Sum = tuple[_Name, int]
"""A sum, and the priority of the zones for which it is computed; 0 if it does not depend on the priority."""
_Entry = tuple[float, int, int]
"""A zone's service when it was entered or last considered, its ticket in the fair queue, and its backoff ticket."""


class _Thresholds:
    """Zones by the threshold that a sum must reach; among equal thresholds, by service, the least served zone first.

    Entries of zones that were woken since are stale. They are removed when they reach the top of a heap, or all at once
    when there are too many.

    Args:
        backed_off: the backed-off zones, by ticket. Entries refer to zones by ticket, so that they keep none alive.
    """

    def __init__(self, backed_off: Mapping[int, Zone]) -> None:
        self._backed_off = backed_off
        self._heaps: dict[float, list[_Entry]] = {}
        self._thresholds: list[float] = []
        """All thresholds, sorted."""
        self._entries = 0
        self._max_entries = _MIN_STALE

    def __len__(self) -> int:
        """The number of entries, including stale ones."""
        return self._entries

    def push(self, threshold: float, zone: Zone) -> None:
        if self._entries >= self._max_entries:
            self._tidy_up()
        heap = self._heaps.get(threshold)
        if heap is None:
            heap = self._heaps[threshold] = []
            insort(self._thresholds, threshold)
        heapq.heappush(heap, (zone.account.service, abs(zone.account.ticket), zone.backoff_ticket))
        self._entries += 1

    def due(self, height: float) -> Iterator[Iterator[Zone]]:
        """Generate the zones whose threshold is at most ``height``, for each threshold the least served zone first."""
        # The next threshold is visited, too, so that its stale entries are removed eventually.
        for threshold in self._thresholds[: bisect_right(self._thresholds, height) + 1]:
            heap = self._heaps[threshold]
            if not self._settle(heap):
                self._drop(threshold)
            elif threshold <= height:
                yield self._in_order(heap)

    def _in_order(self, heap: list[_Entry]) -> Iterator[Zone]:
        yield self._backed_off[heap[0][2]]
        for entry in islice(in_order(heap, self._current), 1, None):
            yield self._backed_off[entry[2]]

    def _settle(self, heap: list[_Entry]) -> bool:
        """Update the top of a heap; returns whether a zone is left in it."""
        while heap:
            now = self._current(heap[0])
            if now is None:
                heapq.heappop(heap)
                self._entries -= 1
            elif now != heap[0]:
                heapq.heapreplace(heap, now)
            else:
                return True
        return False

    def _current(self, entry: _Entry) -> _Entry | None:
        _, ticket, backoff_ticket = entry
        zone = self._backed_off.get(backoff_ticket)
        if zone is None or zone.backoff_ticket != backoff_ticket:
            return None
        return zone.account.service, ticket, backoff_ticket

    def _drop(self, threshold: float) -> None:
        del self._heaps[threshold]
        del self._thresholds[bisect_right(self._thresholds, threshold) - 1]

    def _tidy_up(self) -> None:
        for threshold, heap in list(self._heaps.items()):
            heap[:] = [entry for entry in heap if entry[2] in self._backed_off]
            heapq.heapify(heap)
            if not heap:
                self._drop(threshold)
        self._entries = sum(map(len, self._heaps.values()))
        self._max_entries = max(_MIN_STALE, 2 * self._entries)


class BackoffSet:
    """The backed-off zones, by the sums that they wait for.

    Args:
        ledger: ledger with all zones.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._thresholds: dict[_Sum, _Thresholds] = {}
        self._new: list[tuple[_Sum, float, int, Zone]] = []
        """Entries of zones that were denied in this step since the last admission."""
        self._tickets = 0
        self._backed_off: dict[int, Zone] = {}
        """Backed-off zones by ticket."""

    def back_off(self, zone: Zone, count: int, peak: int, headroom: int) -> None:
        """Add a zone whose next request was denied ``count`` blocks to which the zone is not entitled.

        Args:
            zone: the zone whose request was denied.
            count: number of blocks that were denied.
            peak: number of blocks that the request uses when it is longest.
            headroom: number of further blocks that must be available and were missing.
        """
        self.discard(zone)
        self._tickets += 1
        zone.backoff_ticket, zone.denied_with = self._tickets, zone.prospects
        self._backed_off[zone.backoff_ticket] = zone
        totals, own, promise = self._ledger.totals, len(zone.cached), zone.spec.quota
        if zone.in_use + count > max(promise.limit, peak):
            return
        if headroom:
            # Without the headroom the request is denied, even if nothing else is missing.
            self._enter("headroom", 0, count + headroom, zone)
        elif zone.overdue:
            return
        elif totals.may_reclaim_surplus(zone, count, peak):
            self._enter("surplus", zone.spec.priority, count - own - zone.locked + zone.reclaimable, zone)
        else:
            self._enter("spare", zone.spec.priority, count - own - zone.locked + zone.evictable, zone)
            self._enter("share", 0, (zone.in_use + count - promise.reserved) / zone.spec.weight, zone)

    def discard(self, zone: Zone) -> None:
        """Remove a zone; does nothing if it is not backed off."""
        self._backed_off.pop(zone.backoff_ticket, None)
        zone.backoff_ticket = 0

    def _enter(self, name: _Name, priority: int, threshold: float, zone: Zone) -> None:
        self._new.append(((name, priority), threshold, zone.backoff_ticket, zone))

    def line_up(self) -> None:
        """Consider denied zones again, after a step or an admission."""
        new, self._new = self._new, []
        for of, threshold, backoff_ticket, zone in new:
            if backoff_ticket == zone.backoff_ticket:
                if of not in self._thresholds:
                    self._thresholds[of] = _Thresholds(self._backed_off)
                self._thresholds[of].push(threshold, zone)

    def due(self, free: int, place: Callable[[Account], Place], *, is_running: bool) -> Iterator[Zone]:
        """Generate the zones for which a sum of blocks has reached their threshold. No zone may change meanwhile.

        Args:
            free: number of blocks that are free now.
            place: returns the place of an account in the fair queue.
            is_running: whether any requests are running; if not, no headroom is required.
        """
        due: list[Iterator[Zone]] = []
        for of, thresholds in list(self._thresholds.items()):
            if len(thresholds):
                due += thresholds.due(self._height(of, free, is_running=is_running))
            else:
                del self._thresholds[of]
        # A zone may wait for two sums.
        seen: set[Zone] = set()
        for zone in heapq.merge(*due, key=lambda zone: place(zone.account)):
            if zone not in seen:
                seen.add(zone)
                yield zone

    def _height(self, of: _Sum, free: int, *, is_running: bool) -> float:
        name, priority = of
        if name == "headroom":
            return free + self._ledger.cached_blocks if is_running else inf
        if name == "share":
            return self._ledger.totals.share_of_one
        return self._ledger.totals.total(name, priority, free)

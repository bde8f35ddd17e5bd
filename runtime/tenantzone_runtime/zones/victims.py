"""Victim orders: zones in the order in which they give up blocks, lowest priority first, then least recently active."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenantzone_runtime.zones.zone import Zone

    Rank = tuple[int, float, int]


class VictimOrder:
    """Zones by who yields first, kept sorted: finding the next victim does not mean looking at all zones."""

    def __init__(self) -> None:
        self._ranks: list[Rank] = []
        self._zones: list[Zone] = []
        self.members: dict[Zone, Rank] = {}
        """The zones in it, and where each belongs."""

    def __len__(self) -> int:
        return len(self._ranks)

    def toggle(self, zone: Zone) -> None:
        """Enter the zone where it belongs, or take it out if it is in."""
        if zone in self.members:
            self.remove(zone)
            return
        rank = (zone.spec.priority, zone.last_active, zone.number)
        index = bisect_left(self._ranks, rank)
        self._ranks.insert(index, rank)
        self._zones.insert(index, zone)
        self.members[zone] = rank

    def move(self, zone: Zone) -> None:
        """Put the zone where it belongs now; harmless if it is not in."""
        if zone in self.members:
            self.remove(zone)
            self.toggle(zone)

    def remove(self, zone: Zone) -> None:
        """Take the zone out; harmless if it is not in."""
        rank = self.members.pop(zone, None)
        if rank is not None:
            index = bisect_left(self._ranks, rank)
            del self._ranks[index], self._zones[index]

    def first(self, excluding: Zone | None = None) -> Zone | None:
        """The next victim."""
        for zone in self._zones[:2]:
            if zone is not excluding:
                return zone
        return None

    def first_up_to(self, priority: int) -> Zone | None:
        """The next victim of this priority or a lower one."""
        return self._zones[0] if self._ranks and self._ranks[0][0] <= priority else None

    def first_above(self, priority: int) -> Zone | None:
        """The next victim of a higher priority."""
        index = bisect_right(self._ranks, (priority, inf, 0))
        return self._zones[index] if index < len(self._zones) else None


class SumsByPriority:
    """Amounts by priority, and their sum above one (a Fenwick tree: both cost the logarithm of the priorities)."""

    def __init__(self) -> None:
        self._priorities: list[int] = []
        self._tree: list[int] = [0]
        self.total = 0

    def learn(self, priority: int) -> None:
        """Make room for a priority that amounts may come under; while there are no amounts or few priorities."""
        index = bisect_left(self._priorities, priority)
        if index < len(self._priorities) and self._priorities[index] == priority:
            return
        amounts = [self._up_to(rank + 1) - self._up_to(rank) for rank in range(len(self._priorities))]
        insort(self._priorities, priority)
        amounts.insert(index, 0)
        self._tree = [0] * (len(amounts) + 1)
        for rank, amount in enumerate(amounts):
            self._add(rank, amount)

    def add(self, priority: int, amount: int) -> None:
        """Add to what is under a priority that was learnt."""
        self.total += amount
        self._add(bisect_left(self._priorities, priority), amount)

    def above(self, priority: int) -> int:
        """The sum of what is under higher priorities."""
        if not self.total:
            return 0
        return self.total - self._up_to(bisect_right(self._priorities, priority))

    def _add(self, rank: int, amount: int) -> None:
        node = rank + 1
        while node < len(self._tree):
            self._tree[node] += amount
            node += node & -node

    def _up_to(self, rank: int) -> int:
        total = 0
        while rank:
            total += self._tree[rank]
            rank &= rank - 1
        return total

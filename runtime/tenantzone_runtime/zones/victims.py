"""Victim orders: zones in the order in which they give up blocks, or lend them.

The lowest priority comes first; then the zone that was least recently active, or whose next block to go was let go
first.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from tenantzone_runtime.zones.zone import Zone

Rank = tuple[int, float, int]

_LOWEST: Final = -(2**31)
_PRIORITIES: Final = 2**32
"""A priority has 32 bits."""


def by_activity(zone: Zone) -> Rank:
    """By priority, then by who was active last."""
    return zone.spec.priority, zone.last_active, zone.number


def by_age(zone: Zone) -> Rank:
    """By priority, then by when the next cached block to go was let go by its last request; there must be one."""
    return zone.spec.priority, zone.cached.first_since, zone.number


class VictimOrder:
    """Zones by who yields first, kept sorted, so that the next victim is found without a look at all zones.

    Args:
        rank: of a zone.
    """

    def __init__(self, rank: Callable[[Zone], Rank] = by_activity) -> None:
        self._rank = rank
        self._ranks: list[Rank] = []
        self._zones: list[Zone] = []
        self.members: dict[Zone, Rank] = {}
        """The zones in it, and where each belongs."""

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Zone]:
        return iter(self._zones)

    def toggle(self, zone: Zone) -> None:
        """Enter the zone where it belongs, or take it out if it is in."""
        if zone in self.members:
            self.remove(zone)
        else:
            self._enter(zone, self._rank(zone))

    def _enter(self, zone: Zone, rank: Rank) -> None:
        index = bisect_left(self._ranks, rank)
        self._ranks.insert(index, rank)
        self._zones.insert(index, zone)
        self.members[zone] = rank

    def put(self, zone: Zone, belongs: bool) -> None:
        """Enter the zone where it belongs now, or take it out if it does not."""
        if not belongs:
            self.remove(zone)
        elif zone not in self.members:
            self._enter(zone, self._rank(zone))
        elif self.members[zone] != (rank := self._rank(zone)):
            self.remove(zone)
            self._enter(zone, rank)

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

    def at(self, index: int) -> Zone | None:
        """The zone in this place; None if there are fewer."""
        return self._zones[index] if index < len(self._zones) else None

    def first(self, excluding: Zone | None = None) -> Zone | None:
        """The next victim; None if there is none."""
        for zone in self._zones[:2]:
            if zone is not excluding:
                return zone
        return None

    def first_two(self) -> list[tuple[Rank, Zone]]:
        """The next two victims with their ranks; fewer if there are no more."""
        return list(zip(self._ranks[:2], self._zones[:2], strict=True))

    def first_up_to(self, priority: int) -> Zone | None:
        """The next victim of this priority or a lower one; None if there is none."""
        return self._zones[0] if self._ranks and self._ranks[0][0] <= priority else None

    def first_above(self, priority: int) -> Zone | None:
        """The next victim of a higher priority; None if there is none."""
        index = bisect_right(self._ranks, (priority, inf, 0))
        return self._zones[index] if index < len(self._zones) else None


class SumsByPriority:
    """The amounts of each priority, and their sum above a priority.

    A Fenwick tree over all priorities that there can be, of which it keeps the nodes that are not zero. Either question
    costs at most one node for each bit of a priority, and nothing is left of a priority without an amount.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, int] = {}
        self.total = 0

    def __len__(self) -> int:
        """The number of nodes that are kept."""
        return len(self._nodes)

    def add(self, priority: int, amount: int) -> None:
        """Add to the amount of a priority."""
        if not amount:
            return
        self.total += amount
        nodes = self._nodes
        node = priority - _LOWEST + 1
        while node <= _PRIORITIES:
            content = nodes.get(node, 0) + amount
            if content:
                nodes[node] = content
            else:
                del nodes[node]
            node += node & -node

    def above(self, priority: int) -> int:
        """The sum of the amounts of higher priorities."""
        if not self.total:
            return 0
        nodes = self._nodes
        above = self.total
        node = priority - _LOWEST + 1
        while node:
            above -= nodes.get(node, 0)
            node &= node - 1
        return above

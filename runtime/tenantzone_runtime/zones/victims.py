"""Victim orders: zones in the order in which they give up blocks, or lend them.

The lowest priority comes first; then the zone least recently active, or whose next block to evict was released first.
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
    """Rank by priority, then by the time of the last activity."""
    return zone.spec.priority, zone.last_active, zone.number


def by_age(zone: Zone) -> Rank:
    """Rank by priority, then by when the next block to evict was last released; there must be one."""
    return zone.spec.priority, zone.cached.first_since, zone.number


class VictimOrder:
    """Zones by which gives up blocks first, kept sorted, so that the next victim is found without a search.

    Args:
        rank: of a zone.
    """

    def __init__(self, rank: Callable[[Zone], Rank] = by_activity) -> None:
        self._rank = rank
        self._ranks: list[Rank] = []
        self._zones: list[Zone] = []
        self.members: dict[Zone, Rank] = {}
        """The zones in it, with their ranks."""

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Zone]:
        return iter(self._zones)

    def toggle(self, zone: Zone) -> None:
        """Enter the zone at its rank, or remove it if it is present."""
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
        """Enter the zone at its present rank, or remove it if it does not belong here."""
        if not belongs:
            self.remove(zone)
        elif zone not in self.members:
            self._enter(zone, self._rank(zone))
        elif self.members[zone] != (rank := self._rank(zone)):
            self.remove(zone)
            self._enter(zone, rank)

    def move(self, zone: Zone) -> None:
        """Move the zone to its present rank; does nothing if it is absent."""
        if zone in self.members:
            self.remove(zone)
            self.toggle(zone)

    def remove(self, zone: Zone) -> None:
        """Remove the zone; does nothing if it is absent."""
        rank = self.members.pop(zone, None)
        if rank is not None:
            index = bisect_left(self._ranks, rank)
            del self._ranks[index], self._zones[index]

    def at(self, index: int) -> Zone | None:
        """The zone at this index; None if there are fewer."""
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

    A Fenwick tree over all possible priorities, which keeps only nodes that are not zero. Each query costs at most one
    node for each bit of a priority, and a priority without an amount takes no memory.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, int] = {}
        self.total = 0

    def __len__(self) -> int:
        """The number of stored nodes."""
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

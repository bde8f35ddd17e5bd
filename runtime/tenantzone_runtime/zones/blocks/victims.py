"""Victim orders: zones in the order in which they give up or lend blocks.

The lowest priority comes first. Some orders sort zones of equal priority by activity: the least recently active zone
comes first. Others sort them by age: the zone whose next block to evict was released first comes first.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from tenantzone_runtime.zones.model.zone import Zone

Rank = tuple[int, float, int]

_LOWEST: Final = -(2**31)
_PRIORITIES: Final = 2**32
"""Number of possible priorities. A priority has 32 bits."""


def by_activity(zone: Zone) -> Rank:
    """Returns a zone's rank: by priority, then by the time of the last activity."""
    return zone.spec.priority, zone.last_active, zone.number


def by_age(zone: Zone) -> Rank:
    """Returns a zone's rank: by priority, then by the last release of the next block to evict.

    The zone must have a cached block.
    """
    return zone.spec.priority, zone.cached.first_since, zone.number


class VictimOrder:
    """Zones sorted by which gives up blocks first, so that the next victim is found without a search.

    Args:
        rank: returns the rank of a zone, by which zones are sorted.
    """

    def __init__(self, rank: Callable[[Zone], Rank] = by_activity) -> None:
        self._rank = rank
        self._ranks: list[Rank] = []
        self._zones: list[Zone] = []
        self.members: dict[Zone, Rank] = {}
        """The zones in the order, with their ranks."""

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Zone]:
        return iter(self._zones)

    def toggle(self, zone: Zone) -> None:
        """Add the zone at its rank, or remove it if it is present."""
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
        """Add or move the zone to its current rank if it belongs here, else remove it."""
        if not belongs:
            self.remove(zone)
        elif zone not in self.members:
            self._enter(zone, self._rank(zone))
        elif self.members[zone] != (rank := self._rank(zone)):
            self.remove(zone)
            self._enter(zone, rank)

    def move(self, zone: Zone) -> None:
        """Move the zone to its current rank; does nothing if it is absent."""
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
        """Returns the zone at this index, or None if there are fewer zones."""
        return self._zones[index] if index < len(self._zones) else None

    def first(self, excluding: Zone | None = None) -> Zone | None:
        """Returns the next victim other than ``excluding``, or None."""
        for zone in self._zones[:2]:
            if zone is not excluding:
                return zone
        return None

    def first_two(self) -> list[tuple[Rank, Zone]]:
        """Returns the next two victims with their ranks, or fewer if there are no more."""
        return list(zip(self._ranks[:2], self._zones[:2], strict=True))

    def first_up_to(self, priority: int) -> Zone | None:
        """Returns the next victim of this priority or a lower one, or None."""
        return self._zones[0] if self._ranks and self._ranks[0][0] <= priority else None

    def first_above(self, priority: int) -> Zone | None:
        """Returns the next victim of a higher priority, or None."""
        index = bisect_right(self._ranks, (priority, inf, 0))
        return self._zones[index] if index < len(self._zones) else None


class SumsByPriority:
    """Amounts by priority, with a fast query for the sum of all amounts above a priority.

    This is a Fenwick tree over all possible priorities that stores only nonzero nodes. A query reads at most one node
    for each bit of a priority, and a priority without an amount takes no memory.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, int] = {}
        self.total = 0

    def __len__(self) -> int:
        """Number of stored nodes."""
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
        """Returns the sum of the amounts of higher priorities."""
        if not self.total:
            return 0
        nodes = self._nodes
        above = self.total
        node = priority - _LOWEST + 1
        while node:
            above -= nodes.get(node, 0)
            node &= node - 1
        return above

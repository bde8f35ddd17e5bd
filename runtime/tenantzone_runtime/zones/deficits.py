"""Weighted deficit round robin over zones: shares the tokens of a step among the zones that have work for them.

The algorithm is Shreedhar and Varghese, *Efficient Fair Queuing using Deficit Round Robin*, SIGCOMM'95. A round is a
step, and a zone's quantum is its share of the step by weight. Because a zone gets at least ``CHUNK`` tokens for its
prompts or none, the rest of its quantum is its deficit, which is carried over. Tokens that a zone can't use go to the
others.

The bound, which the tests check: of two zones that have work for more than their shares in each step, neither is ahead
of the other by more than ``BOUND`` tokens per unit of weight, however long that lasts. If zones need another least
number of tokens, it replaces ``CHUNK``.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tenantzone_runtime.zones.zone import Zone

CHUNK: Final = 64
"""The fewest tokens that a zone gets for its prompts: fewer are not worth the cost of a request in a step."""
BOUND: Final = 4 * CHUNK


class DeficitRoundRobin:
    """The zones that have work for the tokens of a step, and what each is owed."""

    def __init__(self) -> None:
        self._deficits: dict[Zone, float] = {}
        """In tokens; below 0 for a zone that had too many."""
        self._carried = float(CHUNK)
        """The most tokens that are carried over."""

    def share(
        self, budget: int, demands: Mapping[Zone, int], least: Mapping[Zone, int] = MappingProxyType({})
    ) -> dict[Zone, int]:
        """Share tokens among zones.

        Args:
            budget: the number of tokens.
            demands: tokens for which each zone has work. A zone that is missing loses its deficit.
            least: the fewest tokens that are useful to a zone, unless its demand is smaller. A share that is too small
                is carried over, and other zones use it meanwhile: first those that have earned most of what they need.
                A zone that needs more than the budget is owed nothing for it.

        Returns:
            Tokens by zone: never more than it has work for, and in all the smaller of the budget and the total work,
            except for tokens that no zone can use.
        """
        self._carried = float(max(CHUNK, *least.values(), 0))
        needed = {zone: min(least.get(zone, 1), demand) for zone, demand in demands.items()}
        self._deficits = {zone: self._deficits.get(zone, 0.0) for zone in demands}
        granted = dict.fromkeys(demands, 0)
        # A zone that needs more than the budget is owed nothing: it would take all of many later steps.
        self._share(budget, demands, [zone for zone, count in needed.items() if 0 < count <= budget], granted)
        too_few = [zone for zone in least if granted[zone] < needed[zone] <= budget]
        if too_few:
            freed = sum(granted[zone] for zone in too_few)
            for zone in too_few:
                self._deficits[zone] += granted[zone]
                granted[zone] = 0
            # By weight alone, a light zone would be as far as a heavy one that has earned nearly a whole chunk.
            for zone in sorted(too_few, key=lambda zone: self._deficits[zone] / needed[zone], reverse=True):
                if needed[zone] <= freed:
                    freed -= self._give(zone, needed[zone], granted)
            for zone in self._most_owed_first(demands):
                if granted[zone] or needed[zone] <= freed:
                    freed -= self._give(zone, min(freed, demands[zone] - granted[zone]), granted)
        return granted

    def _most_owed_first(self, zones: Iterable[Zone]) -> list[Zone]:
        return sorted(zones, key=lambda zone: self._deficits[zone] / zone.account.weight, reverse=True)

    def _share(self, budget: int, demands: Mapping[Zone, int], unmet: list[Zone], granted: dict[Zone, int]) -> None:
        while budget > 0 and unmet:
            # The zone that was owed most is first; a zone that gets nothing in this step is owed more in the next.
            in_turn = self._most_owed_first(unmet)
            self._credit(budget, unmet)
            given = 0
            for zone in in_turn:
                count = min(demands[zone] - granted[zone], int(self._deficits[zone]), budget - given)
                given += self._give(zone, max(0, count), granted)
                if granted[zone] == demands[zone]:
                    unmet.remove(zone)
                    self._deficits[zone] = 0.0
            budget -= given or self._give_rest(budget, unmet, granted)
        self._balance(unmet)

    def owe(self, zone: Zone, tokens: float) -> None:
        """Carry over tokens that a zone was given and could not use; no more than it takes to begin a prompt."""
        if zone in self._deficits:
            self._deficits[zone] = max(self._deficits[zone], min(self._deficits[zone] + tokens, self._carried))

    def charge(self, zone: Zone, tokens: float) -> float:
        """Count leftover tokens of other zones that a zone uses; it pays back no more than it takes to begin a prompt.

        Returns:
            The tokens that the zone pays back; owing it as many undoes the charge.
        """
        before = self._deficits.get(zone, 0.0)
        after = min(before, max(before - tokens, -self._carried))
        if zone in self._deficits:
            self._deficits[zone] = after
        return before - after

    def lose(self, tokens: int) -> None:
        """Count tokens that no zone could use: each zone that is owed some of them loses its part by weight.

        Otherwise all deficits would grow to the most that is carried over, and no longer show which zone is owed more.
        """
        weight = sum(zone.account.weight for zone in self._deficits)
        for zone in self._deficits:
            self.charge(zone, tokens * zone.account.weight / weight)

    def forget(self, zone: Zone) -> None:
        """Forget a zone that is gone."""
        self._deficits.pop(zone, None)

    def _credit(self, budget: int, zones: list[Zone]) -> None:
        weight = sum(zone.account.weight for zone in zones)
        for zone in zones:
            self._deficits[zone] += budget * zone.account.weight / weight

    def _balance(self, zones: list[Zone]) -> None:
        """Make the deficits of zones sum to 0, without increasing what any zone is owed relative to another.

        Tokens that a zone in credit leaves to others are credited to all again, so deficits would grow otherwise.
        """
        weight = sum(zone.account.weight for zone in zones)
        total = sum(self._deficits[zone] for zone in zones)
        for zone in zones:
            self._deficits[zone] -= total * zone.account.weight / weight

    def _give(self, zone: Zone, count: int, granted: dict[Zone, int]) -> int:
        granted[zone] += count
        self._deficits[zone] -= count
        return count

    def _give_rest(self, budget: int, zones: list[Zone], granted: dict[Zone, int]) -> int:
        """Give out the last few tokens: no zone is owed a whole one of them."""
        first = self._most_owed_first(zones)[:budget]
        return sum(self._give(zone, 1, granted) for zone in first)

"""Weighted deficit round robin over zones: how the tokens of a step are shared among those that have work for them.

The algorithm is Shreedhar and Varghese, *Efficient Fair Queuing using Deficit Round Robin*, SIGCOMM'95. A round is a
step, and a zone's quantum its share of the step by weight. What it is owed, since it gets at least ``CHUNK`` tokens
for its prompts or none, is its deficit and carried over. What a zone has no use for is the others'.

The bound, which the tests hold it to: of two zones that have work for more than their shares in each step, neither is
ahead of the other by more than ``BOUND`` tokens per unit of weight, however long that lasts. Where zones
need some other number of tokens at least, that number takes the place of ``CHUNK``.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tenantzone_runtime.zones.zone import Zone

CHUNK: Final = 64
"""Tokens that a zone gets for its prompts at least: fewer are not worth what a request costs in a step."""
BOUND: Final = 4 * CHUNK


class DeficitRoundRobin:
    """The zones that have work for the tokens of a step, and what each is owed."""

    def __init__(self) -> None:
        self._deficits: dict[Zone, float] = {}
        """In tokens; below 0 for who had one too many."""
        self._carried = float(CHUNK)
        """How many of them are carried over at the most."""

    def share(
        self, budget: int, demands: Mapping[Zone, int], least: Mapping[Zone, int] = MappingProxyType({})
    ) -> dict[Zone, int]:
        """Share tokens among zones.

        Args:
            budget: tokens that there are.
            demands: tokens for which each zone has work. Who is not among them any more is owed nothing.
            least: for zones to which fewer tokens are no use, how many, unless that is more than their demand. What is
                too few for a zone is owed to it, and others have it meanwhile: first those that have earned most of
                what they need. A zone that needs more than the budget is owed nothing for it.

        Returns:
            Tokens by zone: never more than it has work for, and in all the budget, or all that there is work for, but
            for what is no use to anybody.
        """
        self._carried = float(max(CHUNK, *least.values(), 0))
        needed = {zone: min(least.get(zone, 1), demand) for zone, demand in demands.items()}
        self._deficits = {zone: self._deficits.get(zone, 0.0) for zone in demands}
        granted = dict.fromkeys(demands, 0)
        # To a zone that needs more than there is nothing is owed: it would have all of many later steps.
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
        """Count tokens that a zone found left over by others; it pays back no more than it takes to begin a prompt.

        Returns:
            The tokens that the zone pays back: to give these back to it undoes the charge.
        """
        before = self._deficits.get(zone, 0.0)
        after = min(before, max(before - tokens, -self._carried))
        if zone in self._deficits:
            self._deficits[zone] = after
        return before - after

    def lose(self, tokens: int) -> None:
        """Count tokens that no zone could use: of what zones are owed for them, each loses its part by weight.

        Otherwise all deficits would grow to the most that is carried over, and no longer say who is owed more.
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
        """Let the deficits of zones add up to 0; of two of them, neither is owed more than before, beside the other.

        What a zone that was ahead leaves to others is credited to all once more, and would have deficits grow.
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

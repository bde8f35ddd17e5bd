"""Weighted deficit round robin over zones: divides the tokens of a step among the zones that have work for them.

The algorithm is Shreedhar and Varghese, *Efficient Fair Queuing using Deficit Round Robin*, SIGCOMM'95. A round is a
step, and a zone's quantum is its share of the step by weight. A zone gets either no tokens or at least ``CHUNK`` tokens
for its prompts. The unused rest of its quantum is its deficit, which is carried over. Tokens that a zone can't use go
to the other zones.

The tests check this bound: if two zones have work for more than their shares in each step, neither ever gets ahead of
the other by more than ``BOUND`` tokens per unit of weight. If zones need another minimum number of tokens, this number
replaces ``CHUNK``.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tenantzone_runtime.zones.model.zone import Zone

CHUNK: Final = 64
"""Minimum number of tokens that a zone gets for its prompts. Fewer are not worth the cost of a request in a step."""
BOUND: Final = 4 * CHUNK


class DeficitRoundRobin:
    """The zones that have work for the tokens of a step, and the number of tokens owed to each."""

    def __init__(self) -> None:
        self._deficits: dict[Zone, float] = {}
        """Deficits in tokens; below 0 for a zone that has had too many tokens."""
        self._carried = float(CHUNK)
        """Maximum number of tokens that are carried over."""

    def share(
        self, budget: int, demands: Mapping[Zone, int], least: Mapping[Zone, int] = MappingProxyType({})
    ) -> dict[Zone, int]:
        """Divide tokens among zones.

        Args:
            budget: number of tokens to divide.
            demands: number of tokens for which each zone has work. A zone that is not included loses its deficit.
            least: minimum number of tokens that is useful to a zone, unless its demand is smaller. A smaller share is
                carried over, and other zones use it in this step: first those that have earned the largest part of what
                they need. A zone that needs more than the budget is owed nothing.

        Returns:
            Number of tokens by zone, at most its demand. The sum is the smaller of the budget and all demands, except
            for tokens that no zone can use.
        """
        self._carried = float(max(CHUNK, *least.values(), 0))
        needed = {zone: min(least.get(zone, 1), demand) for zone, demand in demands.items()}
        self._deficits = {zone: self._deficits.get(zone, 0.0) for zone in demands}
        granted = dict.fromkeys(demands, 0)
        # A zone that needs more than the budget is owed nothing, or it would take all tokens of many later steps.
        self._share(budget, demands, [zone for zone, count in needed.items() if 0 < count <= budget], granted)
        too_few = [zone for zone in least if granted[zone] < needed[zone] <= budget]
        if too_few:
            freed = sum(granted[zone] for zone in too_few)
            for zone in too_few:
                self._deficits[zone] += granted[zone]
                granted[zone] = 0
            # Sort by the earned part of a chunk. If sorted by weight, a light zone could precede one that has nearly
            # earned its chunk.
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
            # The zone that is owed most comes first. A zone that gets nothing in this step is owed more in the next.
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
        """Carry over tokens that a zone was given and could not use, at most the number needed to begin a prompt."""
        if zone in self._deficits:
            self._deficits[zone] = max(self._deficits[zone], min(self._deficits[zone] + tokens, self._carried))

    def charge(self, zone: Zone, tokens: float) -> float:
        """Charge a zone for using leftover tokens of other zones, at most the number needed to begin a prompt.

        Returns:
            The number of charged tokens. Passing it to `owe` undoes the charge.
        """
        before = self._deficits.get(zone, 0.0)
        after = min(before, max(before - tokens, -self._carried))
        if zone in self._deficits:
            self._deficits[zone] = after
        return before - after

    def lose(self, tokens: int) -> None:
        """Reduce the deficits of all zones, by weight, by the tokens that no zone could use.

        Otherwise all deficits would grow to the maximum, and no longer show which zone is owed more.
        """
        weight = sum(zone.account.weight for zone in self._deficits)
        for zone in self._deficits:
            self.charge(zone, tokens * zone.account.weight / weight)

    def forget(self, zone: Zone) -> None:
        """Forget a removed zone."""
        self._deficits.pop(zone, None)

    def _credit(self, budget: int, zones: list[Zone]) -> None:
        weight = sum(zone.account.weight for zone in zones)
        for zone in zones:
            self._deficits[zone] += budget * zone.account.weight / weight

    def _balance(self, zones: list[Zone]) -> None:
        """Shift the deficits of zones so that their sum is 0, without changing them relative to each other.

        Otherwise deficits would grow, because tokens that a zone leaves to other zones are credited to all zones again.
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
        """Give out the last few tokens, when no zone is owed a whole token; returns their number."""
        first = self._most_owed_first(zones)[:budget]
        return sum(self._give(zone, 1, granted) for zone in first)

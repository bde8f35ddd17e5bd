"""The prompt tokens of a step: divided among zones by weight, granted to requests, and released to other zones."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, Generic, NamedTuple

from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tokens.deficits import DeficitRoundRobin
from tenantzone_runtime.zones.tokens.pacing import Pacing, Prompts
from tenantzone_runtime.zones.tokens.tokens_left import TokensLeft


class Granted(NamedTuple):
    """Number of tokens that a request was granted for its prompt, by where they came from."""

    own: int
    """Tokens from the share of the request's zone."""
    found: int
    """Tokens that other zones left unused."""
    spare: int
    """Tokens for which no zone had work."""
    charged: float
    """Number of ``found`` and ``spare`` tokens for which the request's zone was charged."""

    @property
    def total(self) -> int:
        """Number of granted tokens."""
        return self.own + self.found + self.spare


NO_PROMPT_TOKENS: Final = Granted(0, 0, 0, 0.0)


class PromptTokens(Generic[W]):
    """The prompt tokens of each step of one engine."""

    def __init__(self) -> None:
        self.left = TokensLeft()
        """The prompt tokens that are left in this step."""
        self._deficits = DeficitRoundRobin()
        self._granted: Counter[Zone] = Counter()
        """Number of prompt tokens granted in this step, by zone."""
        self._with_targets: Collection[Zone] = ()
        """Zones whose tokens are for their own latency targets. Other zones must not use these tokens."""

    def clear(self) -> None:
        """Forget the tokens of a step."""
        self.left.clear()
        self._granted.clear()
        self._with_targets = ()

    def divide(self, budget: int, prompts: Mapping[Zone, Prompts], running: Collection[Zone]) -> None:
        """Divide tokens of a step among zones.

        Args:
            budget: number of tokens to divide.
            prompts: the zones' prompts.
            running: zones with prompts of running requests. In a small step, such a prompt continues with less than a
                chunk.
        """
        left, to_continue = self.left, min(self.left.chunk, budget)
        least = {
            zone: max(to_continue if zone in running else left.chunk, each.chunk) for zone, each in prompts.items()
        }
        demands = {zone: each.tokens for zone, each in prompts.items()}
        left.of_zone = self._deficits.share(budget, demands, least)
        left.spare = max(0, budget - sum(demands.values()))
        left.unclaimed = budget - left.spare - sum(left.of_zone.values())

    def divide_paced(self, pacing: Pacing[W], others: Mapping[Zone, Prompts], running: Collection[Zone]) -> None:
        """Divide the tokens of a step that is bounded by latency targets.

        Args:
            pacing: the plan of the step.
            others: prompts of zones without a current target.
            running: zones with prompts of running requests.
        """
        self._with_targets = pacing.prompt_tokens.keys()
        self.divide(pacing.of_others, others, running)
        self.left.of_zone |= pacing.prompt_tokens
        if pacing.overdue is not None:
            self.left.of_zone[pacing.overdue] = max(pacing.of_overdue, self.left.of_zone.get(pacing.overdue, 0))

    def available(self, zone: Zone) -> int:
        """Returns the number of prompt tokens that a zone's next request may be granted."""
        return self.left.of_zone.get(zone, 0) + self.left.free

    def grant(self, zone: Zone, count: int) -> Granted:
        """Grant tokens to a request of a zone: the zone's own ones first, and then those that any zone may use."""
        left = self.left
        own = min(count, left.of_zone.get(zone, 0))
        if own:
            left.of_zone[zone] -= own
        found = min(count - own, left.unclaimed)
        spare = min(count - own - found, left.spare)
        left.unclaimed -= found
        left.spare -= spare
        charged = self._deficits.charge(zone, found + spare) if found + spare else 0.0
        self._granted[zone] += count
        return Granted(own, found, spare, charged)

    def undo(self, zone: Zone, granted: Granted) -> None:
        """Undo a grant, because the engine did not compute the request."""
        self.left.of_zone[zone] = self.left.of_zone.get(zone, 0) + granted.own
        self.left.unclaimed += granted.found
        self.left.spare += granted.spare
        self._deficits.owe(zone, granted.charged)
        self._granted[zone] -= granted.total

    def release_rest(self, zone: Zone, chunk: int) -> None:
        """Release the rest of a zone's tokens if they are too few for a chunk of its prompts.

        Otherwise the rests of several zones may add up to a whole chunk that stays unused. Tokens for a zone's own
        latency target are not released.

        Args:
            zone: the zone.
            chunk: minimum number of tokens of the zone's prompts that a step computes, if it computes any.
        """
        rest = self.left.of_zone.get(zone, 0)
        if 0 < rest < chunk and zone not in self._with_targets:
            self._deficits.owe(zone, rest)
            self.left.unclaimed += self.left.of_zone.pop(zone)

    def let_go(self, unused: int) -> list[Zone]:
        """Let prompts begin with less than a chunk. Otherwise no request would use these tokens.

        Args:
            unused: number of tokens of a step that has computed nothing yet; 0 if it has computed anything.

        Returns:
            Zones that were turned away for lack of tokens, to be considered again.
        """
        turned_away, lost = self.left.let_go(unused, self._with_targets)
        for zone, count in lost.items():
            self._deficits.owe(zone, count)
        return turned_away

    def zones_after_let_go(self, left: TokensLeft, unused: int) -> list[Zone]:
        """Returns the zones that `let_go` would return, and updates a copy of `left` as `let_go` would update it."""
        return left.let_go(unused, self._with_targets)[0]

    def end_step(self) -> set[Zone]:
        """End the step; a zone is owed the tokens that it was given and did not use.

        Returns:
            The zones whose prompts the step computes.
        """
        for zone, count in self.left.of_zone.items():
            self._deficits.owe(zone, count)
        if self.left.unclaimed:
            self._deficits.lose(self.left.unclaimed)
        return {zone for zone, count in self._granted.items() if count > 0}

    def forget(self, zone: Zone) -> None:
        """Forget a removed zone."""
        self._deficits.forget(zone)

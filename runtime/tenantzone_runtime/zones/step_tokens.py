"""The tokens of a step: how many each zone may have computed in it.

Decodes come first: the tokens of generating requests are subtracted from the step's tokens. The rest goes by weight
(``deficits``) to the zones that have prompts to compute, running or next to be admitted, if there are at least two such
zones, or another zone generates, and not all of it fits. So a long prompt takes no more than its zone's share while
another zone has work. Drafts of generating requests leave prompts a chunk of the step. Tokens that a zone does not use
are available to all before the step ends. Latency targets reduce a step (``latency_budget``).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final, Generic, NamedTuple

from tenantzone_runtime.zones.deficits import CHUNK, DeficitRoundRobin
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.latency_budget import LatencyBudget
from tenantzone_runtime.zones.pacing import Pacing, Prompts
from tenantzone_runtime.zones.step_prompts import LOOKED_AT, StepPrompts
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.zone import Zone

_CHUNKS: Final = 4
"""The number of prompts that a small step can continue, if it has tokens for prompts at all."""


class _Granted(NamedTuple):
    """Tokens of a prompt that a request was granted."""

    own: int
    """Tokens from its zone's own share of the step, ..."""
    found: int
    """... tokens that other zones left, ..."""
    spare: int
    """... and tokens that no zone had work for."""
    charged: float
    """How many of the last two its zone was charged for."""


_NONE_OF_PROMPT: Final = _Granted(0, 0, 0, 0.0)


class StepTokens(Generic[W]):
    """Shares the tokens of each step of one engine.

    Args:
        tenancy: of all zones.
        engine: whose steps.
        prompts: finds the prompts that a step may compute.
        latency_budget: bounds steps for zones with latency targets.
    """

    def __init__(
        self, tenancy: Tenancy, engine: Engine[W], prompts: StepPrompts[W], latency_budget: LatencyBudget[W]
    ) -> None:
        self._tenancy = tenancy
        self._targets = tenancy.ledger.totals.with_targets
        self._engine = engine
        self._prompts = prompts
        self._deficits = DeficitRoundRobin()
        self._latency_budget = latency_budget
        self.bound: float | None = None
        """Seconds that other zones should not exceed in the last planned step; None: no zone bounded it."""
        self.is_shared = False
        """Whether the tokens of this step are shared; if not, each request takes what it finds."""
        self._left: dict[Zone, int] = {}
        """Tokens of prompts that each zone may still compute in this step."""
        self._unclaimed = 0
        """The same, for any zone without tokens: tokens that zones are owed and could not use."""
        self._spare = 0
        """The same, but no zone is owed these."""
        self._let_go_of = 0
        """The number of unclaimed and spare tokens at the last release with which no request could begin."""
        self._chunk = CHUNK
        """The fewest tokens that a zone gets for its prompts: few if the step is small, or full of generation."""
        self._each = engine.tokens_each
        """The most tokens that are computed in this step of each generating request."""
        self._computed: Counter[Zone] = Counter()
        """Prompt tokens of each zone that are computed in this step."""
        self._pacing: Pacing[W] | None = None
        self._is_generating_bounded = False
        """Whether a generating request may have fewer tokens in this step than the engine would compute."""
        self._in_all = 0
        """Tokens of all zones that are computed in this step."""
        self._are_given = False
        """Whether any zone was given tokens for prompts before this step."""
        self._were_in_vain = False
        """Whether the last step had such tokens and nothing was computed in it: those zones could not continue.

        Others may have what they wait for, so each request takes what it finds in the next step."""
        self._made_wait: list[Zone] = []
        """Zones whose next request found no tokens in the last step."""
        self._turned_away: list[Zone] = []
        """Zones whose waiting request was denied admission in this step for lack of tokens."""
        self._last: W | None = None
        """The request that was granted tokens last, ..."""
        self._last_granted = _NONE_OF_PROMPT
        """... the tokens that it was granted for its prompt, ..."""
        self._last_generated = 0
        """... and those for generation."""

    def begin_step(self) -> None:
        """Share the tokens of a step, before it."""
        engine = self._engine
        self._end()
        self.bound = None
        made_wait, self._made_wait = self._made_wait, []
        for zone in made_wait:
            if zone.wait_reason == "tokens":
                self._tenancy.may_go_on(zone)
        if engine.step_tokens is None or not engine.goes_on or self._were_in_vain:
            return
        bounds = self._latency_budget.bounds() if self._targets else {}
        computing = engine.in_prompts()
        generating = len(engine.running) - len(computing)
        in_prompts = self._prompts.that_fit(computing)
        waiting = self._prompts.waiting(bounds)
        budget = max(0, engine.step_tokens - generating * engine.tokens_each)
        least = min(CHUNK, engine.step_tokens // _CHUNKS)
        may_cut_drafts = engine.tokens_each > 1 and budget < least
        if not bounds and not self._prompts.compete(in_prompts, waiting, may_cut_drafts=may_cut_drafts):
            return
        # If drafts are cut, each request has a whole number of them, and prompts may have a little more than the least.
        prompts = self._prompts.by_zone(in_prompts, waiting, least + generating if may_cut_drafts else budget)
        if may_cut_drafts:
            needed = min(least, sum(each.tokens for each in prompts.values()))
            budget = self._cut_drafts(engine.step_tokens, generating, needed)
        self._chunk = max(1, min(CHUNK, engine.step_tokens // _CHUNKS, budget))
        pacing = self._latency_budget.plan(bounds, prompts, budget, self._chunk) if bounds else None
        if pacing is not None and not self._prompts.is_one_zone_alone(bounds):
            self._pacing = pacing
            self.bound = pacing.bound
            others = {zone: each for zone, each in prompts.items() if zone not in bounds}
            self._share(pacing.of_others, others, in_prompts)
            self._left |= pacing.prompt_tokens
            if pacing.overdue is not None:
                self._left[pacing.overdue] = max(pacing.of_overdue, self._left.get(pacing.overdue, 0))
        elif self._are_drafts_cut or sum(each.tokens for each in prompts.values()) > budget:
            self._share(budget, prompts, in_prompts)
        self._is_generating_bounded = self._pacing is not None or self._are_drafts_cut
        self._are_given = any(self._left.values())
        for work, _ in waiting.values() if self.is_shared else ():
            self._is_enough(work)

    @property
    def denied(self) -> Collection[Zone]:
        """Zones whose next request can't begin with the tokens that they have in this step."""
        return self._made_wait

    def tokens_for(self, work: W, wanted: int, fitting: Callable[[int], int] | None = None) -> int:
        """Returns how many of the tokens that the engine would compute for a request it may compute now.

        Args:
            work: a running request, or the one that is next to be admitted.
            wanted: tokens that the engine would compute.
            fitting: given a bound, returns how many tokens of its prompt the engine can compute; None: any number.

        Returns:
            0 for a running request that is skipped in this step. A waiting one always gets some: otherwise it would not
            have been next.
        """
        if not self.is_shared:
            return wanted
        if self._generates(work):
            return self.tokens_to_generate(work, wanted)
        granted = self._share_of_prompt(work, wanted, fitting)
        self._take(work, granted)
        if granted < wanted:
            self._let_go_of_rest(work)
        self._in_all += granted
        return granted

    def tokens_to_generate(self, work: W, wanted: int) -> int:
        """Returns the same as `tokens_for`, for a running request that generates.

        Args:
            work: the request.
            wanted: tokens that the engine would compute.
        """
        if not self.is_shared:
            return wanted
        # Called for each running request in each step. Most requests get what they want.
        granted = wanted
        if self._is_generating_bounded:
            granted = self._share_of_generating(work, wanted)
            if self._are_drafts_cut and granted > self._each:
                self._spare -= 1
        self._last, self._last_granted, self._last_generated = work, _NONE_OF_PROMPT, granted
        self._in_all += granted
        return granted

    def share_of(self, work: W, wanted: int, fitting: Callable[[int], int] | None = None) -> int:
        """Returns the tokens that `tokens_for` would grant, before it is known whether the engine can use them."""
        if not self.is_shared:
            return wanted
        if self._generates(work):
            return self._share_of_generating(work, wanted)
        return self._share_of_prompt(work, wanted, fitting)

    def _share_of_generating(self, work: W, wanted: int) -> int:
        granted = min(wanted, self._each + (1 if self._spare else 0)) if self._are_drafts_cut else wanted
        if self._pacing is not None and work in self._pacing.sit_out:
            granted = 0
        work.zone.counters.withheld_tokens += wanted - granted
        return granted

    def _share_of_prompt(self, work: W, wanted: int, fitting: Callable[[int], int] | None) -> int:
        zone = work.zone
        granted = min(wanted, self._left.get(zone, 0) + self._free)
        if not self._engine.is_running(work):
            granted = max(min(wanted, self._engine.chunk_tokens(work)), granted)
        if fitting is not None and granted < wanted:
            granted = fitting(granted)
        zone.counters.withheld_tokens += wanted - granted
        return granted

    def may_begin(self, work: W) -> bool:
        """Whether there are tokens in this step to begin a waiting request with."""
        if not self.is_shared:
            return True
        may_begin = self._is_enough(work)
        if not may_begin:
            self._turned_away.append(work.zone)
        return may_begin

    @property
    def is_used_up(self) -> bool:
        """Whether enough zones found no tokens that considering further ones without a share of them is useless.

        A lower number would hold up zones whose blocks have become available: the next step is shared among the zones
        that wait for tokens, and considers as many.
        """
        return self.is_shared and not self._free and len(self._turned_away) >= LOOKED_AT

    def was_turned_down(self, work: W) -> None:
        """Note that the engine did not compute a request after all, if tokens were granted to it last."""
        last, self._last = self._last, None
        if last is work:
            (own, found, spare, charged), generated = self._last_granted, self._last_generated
            self._left[work.zone] = self._left.get(work.zone, 0) + own
            self._unclaimed += found
            self._spare += spare + generated
            self._deficits.owe(work.zone, charged)
            self._computed[work.zone] -= own + found + spare
            self._in_all -= own + found + spare + generated

    def let_go(self) -> list[Zone]:
        """Let prompts begin with less than a chunk, from the rest of their zones' tokens and then from those of others.

        Otherwise no request would use these tokens: the running ones have had theirs.

        Returns:
            Zones that were turned away for lack of tokens, to be considered again.
        """
        with_rest = [zone for zone in self._turned_away if self._left.get(zone)]
        if self._chunk > 1 and with_rest:
            self._chunk = 1
            self._turned_away = [zone for zone in self._turned_away if zone not in with_rest]
            return with_rest
        self._chunk = 1
        turned_away, self._turned_away = self._turned_away, []
        bounded = [zone for zone, count in self._left.items() if count and not self._is_own(zone)]
        for zone in bounded:
            self._deficits.owe(zone, self._left[zone])
            self._unclaimed += self._left.pop(zone)
        if not self._in_all:
            # An empty step helps no request, whatever the targets are.
            self._spare += max(0, (self._engine.step_tokens or 0) - self._free)
        # If prompts are computed in units of several tokens, the rest may be too small again.
        found, self._let_go_of = self._free - self._let_go_of, self._free
        return turned_away if found > 0 else []

    def end_step(self) -> None:
        """End the step; a zone is owed the tokens that it was given and did not use."""
        for zone, count in self._left.items():
            self._deficits.owe(zone, count)
        if self._unclaimed:
            self._deficits.lose(self._unclaimed)
        computed = {zone for zone, count in self._computed.items() if count > 0}
        self._latency_budget.end_step(self._pacing, computed)
        self._were_in_vain = self._are_given and not self._in_all
        self._end()

    def forget(self, zone: Zone) -> None:
        """Forget a zone that is gone."""
        self._deficits.forget(zone)
        self._latency_budget.forget(zone)

    @property
    def _are_drafts_cut(self) -> bool:
        """Whether generating requests may have fewer drafts in this step than the engine makes."""
        return self._each < self._engine.tokens_each

    @property
    def _free(self) -> int:
        """The tokens of prompts that any zone may still have computed in this step."""
        return self._unclaimed + self._spare

    def _cut_drafts(self, step_tokens: int, generating: int, needed: int) -> int:
        """Cut the drafts of this step, if they would leave prompts fewer tokens than needed.

        Args:
            step_tokens: of the step.
            generating: the number of generating requests.
            needed: tokens that drafts have to leave to prompts.

        Returns:
            The tokens that prompts may have in the step.
        """
        if step_tokens - generating * self._each < needed:
            self._each = max(1, (step_tokens - needed) // generating)
        return max(0, step_tokens - generating * self._each)

    def _end(self) -> None:
        self.is_shared = False
        self._each = self._engine.tokens_each
        self._left = {}
        self._unclaimed = self._spare = self._let_go_of = 0
        self._in_all = 0
        self._are_given = False
        self._computed.clear()
        self._pacing = None
        self._turned_away = []
        self._last = None

    def _is_enough(self, work: W) -> bool:
        """Whether there are tokens to begin a waiting request with; if not, its zone is noted as waiting for them."""
        needed = min(max(self._chunk, self._engine.chunk_tokens(work)), self._engine.tokens_left(work))
        is_enough = self._left.get(work.zone, 0) + self._free >= needed
        if not is_enough:
            self._tenancy.must_wait_for_tokens(work.zone)
            self._made_wait.append(work.zone)
        return is_enough

    def _is_own(self, zone: Zone) -> bool:
        """Whether the zone's tokens are for its own target, and would be too many for others."""
        return self._pacing is not None and zone in self._pacing.prompt_tokens

    def _generates(self, work: W) -> bool:
        return self._engine.is_running(work) and not self._engine.is_in_prompt(work)

    def _take(self, work: W, count: int) -> None:
        zone = work.zone
        own = min(count, self._left.get(zone, 0))
        if own:
            self._left[zone] -= own
        found = min(count - own, self._unclaimed)
        spare = min(count - own - found, self._spare)
        self._unclaimed -= found
        self._spare -= spare
        charged = self._deficits.charge(zone, found + spare) if found + spare else 0.0
        self._computed[zone] += count
        self._last, self._last_granted, self._last_generated = work, _Granted(own, found, spare, charged), 0

    def _let_go_of_rest(self, work: W) -> None:
        """Release the rest of a zone's tokens if they are too few to complete a chunk of its prompts.

        Otherwise the rests of several zones may add up to a whole chunk that stays unused.
        """
        zone = work.zone
        rest = self._left.get(zone, 0)
        if 0 < rest < self._engine.chunk_tokens(work) and not self._is_own(zone):
            self._deficits.owe(zone, rest)
            self._unclaimed += self._left.pop(zone)

    def _share(self, budget: int, prompts: dict[Zone, Prompts], in_prompts: Iterable[W]) -> None:
        self.is_shared = True
        go_on = {work.zone for work in in_prompts}
        to_go_on = min(self._chunk, budget)
        least = {zone: max(to_go_on if zone in go_on else self._chunk, each.chunk) for zone, each in prompts.items()}
        demands = {zone: each.tokens for zone, each in prompts.items()}
        self._left = self._deficits.share(budget, demands, least)
        self._spare = max(0, budget - sum(demands.values()))
        self._unclaimed = budget - self._spare - sum(self._left.values())

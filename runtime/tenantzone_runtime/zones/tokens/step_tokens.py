"""The token budget of a step: how many tokens each zone may compute in it.

Decodes come first: the tokens of generating requests are subtracted from the step's budget. The rest is for prompts of
running requests and of the next ones to be admitted. If these prompts do not all fit, and belong to several zones or
compete with another zone's decodes, the rest is divided among their zones by weight (``deficits``). So a long prompt
takes no more than its zone's share while another zone has work. Drafts are cut so that prompts get at least a chunk of
the step. Tokens that a zone does not use become available to all zones before the step ends. Latency targets reduce the
budget further (``latency_budget``).
"""

from collections.abc import Callable, Collection
from typing import Final, Generic

from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.tokens.deficits import CHUNK
from tenantzone_runtime.zones.tokens.latency_budget import LatencyBudget
from tenantzone_runtime.zones.tokens.pacing import Pacing
from tenantzone_runtime.zones.tokens.prompt_tokens import NO_PROMPT_TOKENS, PromptTokens
from tenantzone_runtime.zones.tokens.step_prompts import LOOKED_AT, StepPrompts
from tenantzone_runtime.zones.tokens.target_bounds import TargetBounds
from tenantzone_runtime.zones.tokens.tokens_left import TokensLeft

_CHUNKS: Final = 4
"""Number of prompts that a small step can continue, if it has any tokens for prompts."""


class StepTokens(Generic[W]):
    """Divides the tokens of each step of one engine among zones.

    Args:
        tenancy: tenancy with all zones.
        engine: the engine whose steps are divided.
        prompts: finds the prompts that a step may compute.
        targets: the bounds of steps by the zones' latency targets.
        latency_budget: plans steps within these bounds.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        engine: Engine[W],
        prompts: StepPrompts[W],
        targets: TargetBounds,
        latency_budget: LatencyBudget[W],
    ) -> None:
        self._tenancy = tenancy
        self._with_targets = tenancy.ledger.totals.with_targets
        self._engine = engine
        self._prompts = prompts
        self._prompt_tokens = PromptTokens[W]()
        self._targets = targets
        self._latency_budget = latency_budget
        self.bound: float | None = None
        """Seconds to which zones without targets should keep the last planned step; None if no zone bounded it."""
        self.is_shared = False
        """Whether the tokens of this step are divided among zones. If not, each request takes as many as are left."""
        self.left = self._prompt_tokens.left
        """The prompt tokens that are left in this step."""
        self._each = engine.tokens_each
        """Maximum number of tokens computed in this step for each generating request."""
        self._pacing: Pacing[W] | None = None
        self._is_generating_bounded = False
        """Whether generating requests may get fewer tokens in this step than the engine would compute."""
        self.in_all = 0
        """Number of tokens computed in this step, for all zones together."""
        self._are_given = False
        """Whether any zone was given tokens for prompts before this step."""
        self._were_in_vain = False
        """Whether the last step had tokens for prompts but computed nothing, because the prompts could not continue.

        Other requests may hold the blocks that these prompts wait for, so the next step is not divided among zones."""
        self._made_wait: list[Zone] = []
        """Zones whose next request got no tokens in the last step."""
        self._last: W | None = None
        """The request that was granted tokens last."""
        self._last_granted = NO_PROMPT_TOKENS
        """Tokens that the last request was granted for its prompt."""
        self._last_generated = 0
        """Number of tokens that the last request was granted for generation."""

    def begin_step(self) -> None:
        """Divide the tokens of the coming step."""
        engine = self._engine
        self._end()
        self.bound = None
        made_wait, self._made_wait = self._made_wait, []
        for zone in made_wait:
            if zone.wait_reason == "tokens":
                self._tenancy.may_go_on(zone)
        if engine.step_tokens is None or not engine.goes_on or self._were_in_vain:
            return
        bounds = self._targets.update() if self._with_targets else {}
        computing = engine.in_prompts()
        generating = len(engine.running) - len(computing)
        in_prompts = self._prompts.that_fit(computing)
        waiting = self._prompts.waiting(bounds)
        budget = max(0, engine.step_tokens - generating * engine.tokens_each)
        least = min(CHUNK, engine.step_tokens // _CHUNKS)
        may_cut_drafts = engine.tokens_each > 1 and budget < least
        if not bounds and not self._prompts.compete(in_prompts, waiting, may_cut_drafts=may_cut_drafts):
            return
        # Each request keeps a whole number of drafts, so cutting drafts may leave prompts slightly more than ``least``.
        prompts = self._prompts.by_zone(in_prompts, waiting, least + generating if may_cut_drafts else budget)
        if may_cut_drafts:
            needed = min(least, sum(each.tokens for each in prompts.values()))
            budget = self._cut_drafts(engine.step_tokens, generating, needed)
        self.left.chunk = max(1, min(CHUNK, engine.step_tokens // _CHUNKS, budget))
        pacing = self._latency_budget.plan(bounds, prompts, budget, self.left.chunk) if bounds else None
        if pacing is not None and not self._prompts.is_one_zone_alone(bounds):
            self._pacing = pacing
            self.bound = pacing.bound
            others = {zone: each for zone, each in prompts.items() if zone not in bounds}
            self._prompt_tokens.divide_paced(pacing, others, {work.zone for work in in_prompts})
            self.is_shared = True
        elif self._are_drafts_cut or sum(each.tokens for each in prompts.values()) > budget:
            self._prompt_tokens.divide(budget, prompts, {work.zone for work in in_prompts})
            self.is_shared = True
        self._is_generating_bounded = self._pacing is not None or self._are_drafts_cut
        self._are_given = any(self.left.of_zone.values())
        for work, _ in waiting.values() if self.is_shared else ():
            if not self._is_enough(work, self.left):
                self._note_wait(work)

    @property
    def denied(self) -> Collection[Zone]:
        """Zones whose next request can't begin with the tokens that the zone has in this step."""
        return self._made_wait

    def tokens_for(self, work: W, wanted: int, fitting: Callable[[int], int] | None = None) -> int:
        """Returns how many of the ``wanted`` tokens of a request the engine may compute now.

        Args:
            work: a running request, or the one that is next to be admitted.
            wanted: tokens that the engine would compute.
            fitting: given a maximum, returns how many tokens of the prompt the engine can compute; None if it can
                compute any number.

        Returns:
            The number of tokens; 0 for a running request that this step skips. A waiting request always gets some,
            since `may_begin` was true before.
        """
        if not self.is_shared:
            return wanted
        if self._generates(work):
            return self.tokens_to_generate(work, wanted)
        granted = self._share_of_prompt(work, wanted, fitting)
        self._last, self._last_generated = work, 0
        self._last_granted = self._prompt_tokens.grant(work.zone, granted)
        if granted < wanted:
            self._prompt_tokens.release_rest(work.zone, self._engine.chunk_tokens(work))
        self.in_all += granted
        return granted

    def tokens_to_generate(self, work: W, wanted: int) -> int:
        """Returns the result of `tokens_for` for a running request that generates.

        Args:
            work: the request.
            wanted: tokens that the engine would compute.
        """
        if not self.is_shared:
            return wanted
        # A fast path, because this is called for each running request in each step, and most get all that they want.
        granted = wanted
        if self._is_generating_bounded:
            granted = self._share_of_generating(work, wanted)
            if self._are_drafts_cut and granted > self._each:
                self.left.spare -= 1
        self._last, self._last_granted, self._last_generated = work, NO_PROMPT_TOKENS, granted
        self.in_all += granted
        return granted

    def share_of(self, work: W, wanted: int, fitting: Callable[[int], int] | None = None) -> int:
        """Returns the tokens that `tokens_for` would grant, before it is known whether the engine can use them.

        Withheld tokens are counted here already, because the engine then asks `tokens_for` only for the granted ones.
        """
        if not self.is_shared:
            return wanted
        if self._generates(work):
            return self._share_of_generating(work, wanted)
        return self._share_of_prompt(work, wanted, fitting)

    def _share_of_generating(self, work: W, wanted: int) -> int:
        granted = min(wanted, self._each + (1 if self.left.spare else 0)) if self._are_drafts_cut else wanted
        if self._pacing is not None and work in self._pacing.sit_out:
            granted = 0
        work.zone.counters.withheld_tokens += wanted - granted
        return granted

    def _share_of_prompt(self, work: W, wanted: int, fitting: Callable[[int], int] | None) -> int:
        zone = work.zone
        granted = min(wanted, self._prompt_tokens.available(zone))
        if not self._engine.is_running(work):
            granted = max(min(wanted, self._engine.chunk_tokens(work)), granted)
        if fitting is not None and granted < wanted:
            granted = fitting(granted)
        zone.counters.withheld_tokens += wanted - granted
        return granted

    def may_begin(self, work: W, left: TokensLeft) -> bool:
        """Whether enough tokens are left to begin a waiting request; ``left`` is this object's `left` or a copy."""
        return not self.is_shared or self._is_enough(work, left)

    def turn_away(self, work: W) -> None:
        """Note that a waiting request was denied admission for lack of tokens."""
        self._note_wait(work)
        self.left.turned_away.append(work.zone)

    def is_used_up(self, left: TokensLeft) -> bool:
        """Whether to stop considering zones, because no tokens are left and enough zones were turned away already.

        The next step is divided among the zones that wait for tokens, and considers at most ``LOOKED_AT`` of them. If
        this step considered fewer, zones whose blocks have become available would be delayed.
        """
        return self.is_shared and not left.free and len(left.turned_away) >= LOOKED_AT

    def was_turned_down(self, work: W) -> None:
        """Undo the last grant of tokens if it was for this request, which the engine did not compute."""
        last, self._last = self._last, None
        if last is work:
            self._prompt_tokens.undo(work.zone, self._last_granted)
            self.left.spare += self._last_generated
            self.in_all -= self._last_granted.total + self._last_generated

    def let_go(self) -> list[Zone]:
        """Let prompts begin with less than a chunk. Otherwise no request would use these tokens.

        Returns:
            Zones that were turned away for lack of tokens, to be considered again.
        """
        return self._prompt_tokens.let_go(self._unused)

    def zones_after_let_go(self, left: TokensLeft) -> list[Zone]:
        """Returns the zones that `let_go` would return, and updates a copy of `left` as `let_go` would update it."""
        return self._prompt_tokens.zones_after_let_go(left, self._unused)

    @property
    def _unused(self) -> int:
        """Number of tokens of this step if it has computed nothing yet; else 0."""
        return 0 if self.in_all else self._engine.step_tokens or 0

    def end_step(self) -> None:
        """End the step; a zone is owed the tokens that it was given and did not use."""
        self._latency_budget.end_step(self._pacing, self._prompt_tokens.end_step())
        self._were_in_vain = self._are_given and not self.in_all
        self._end()

    def forget(self, zone: Zone) -> None:
        """Forget a removed zone."""
        self._prompt_tokens.forget(zone)
        self._targets.forget(zone)

    @property
    def _are_drafts_cut(self) -> bool:
        """Whether generating requests may compute fewer drafts in this step than the engine has made."""
        return self._each < self._engine.tokens_each

    def _cut_drafts(self, step_tokens: int, generating: int, needed: int) -> int:
        """Cut the drafts of this step, if they would leave prompts fewer tokens than needed.

        Args:
            step_tokens: token budget of the step.
            generating: number of generating requests.
            needed: number of tokens to leave to prompts.

        Returns:
            The number of tokens for prompts in the step.
        """
        if step_tokens - generating * self._each < needed:
            self._each = max(1, (step_tokens - needed) // generating)
        return max(0, step_tokens - generating * self._each)

    def _end(self) -> None:
        self.is_shared = False
        self._each = self._engine.tokens_each
        self._prompt_tokens.clear()
        self.in_all = 0
        self._are_given = False
        self._pacing = None
        self._last = None

    def _is_enough(self, work: W, left: TokensLeft) -> bool:
        """Whether enough tokens are left to begin a waiting request."""
        needed = min(max(left.chunk, self._engine.chunk_tokens(work)), self._engine.tokens_left(work))
        return left.of_zone.get(work.zone, 0) + left.free >= needed

    def _note_wait(self, work: W) -> None:
        """Note that the zone of a waiting request waits for tokens."""
        self._tenancy.must_wait_for_tokens(work.zone)
        self._made_wait.append(work.zone)

    def _generates(self, work: W) -> bool:
        return self._engine.is_running(work) and not self._engine.is_in_prompt(work)

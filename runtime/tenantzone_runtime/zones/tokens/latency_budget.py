"""The latency budget of steps: how much work of other zones a step may take while a zone has a latency target.

A target bounds the duration of steps. While a zone with a target has requests, or may soon have one again, a step takes
tokens of other zones only as long as its predicted duration stays within the bound. If other zones have too many
generating requests even for that, these skip steps in turn. A step that computes a prompt of the zone itself takes
little work of other zones. If the zone also generates, its prompts are cut so that they do not make its own steps
longer than its target. `latency_bounds` has the guarantee as a formula.

Steps are not bounded before enough of them were measured for a prediction, nor if the zone's own requests alone take
much longer than its target. A request that has skipped many steps in a row is computed despite the bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Final, Generic

from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.step_time import StepLoad, StepTimes
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tokens.latency import Alone, Latency
from tenantzone_runtime.zones.tokens.latency_bounds import BESIDE_OWN_PROMPTS, own_prompt_steps
from tenantzone_runtime.zones.tokens.margin import Margin
from tenantzone_runtime.zones.tokens.pacing import Pacing, Prompts
from tenantzone_runtime.zones.tokens.target_bounds import TargetBounds

OUT_OF_REACH: Final = 1.25
"""A target is ignored if the zone's own requests alone take this many times as long as the target."""
SITS_OUT_AT_MOST: Final = 32
"""Number of skipped steps after which a request is computed despite the bound, one such request in each step."""


class LatencyBudget(Generic[W]):
    """Bounds steps for the zones with latency targets.

    Args:
        engine: the engine whose steps are bounded.
        times: predicts the duration of steps.
        latency: receives the time that a zone's requests take alone.
        targets: the zones' targets, and statistics of their requests.
        margin: fraction of each bound that is left unused.
    """

    def __init__(
        self,
        engine: Engine[W],
        times: StepTimes,
        latency: Latency,
        targets: TargetBounds,
        margin: Margin,
    ) -> None:
        self._engine = engine
        self._times = times
        self._latency = latency
        self._targets = targets
        self._margin = margin
        self._sat_out: dict[W, int] = {}
        """Number of consecutive steps that skipped each request, for requests that the last step skipped."""
        self._starved: dict[Zone, int] = {}
        """Number of consecutive steps that skipped all prompts of each zone."""

    def plan(
        self, bounds: Mapping[Zone, float], prompts: Mapping[Zone, Prompts], budget: int, chunk: int
    ) -> Pacing[W] | None:
        """Plans how many tokens of a step each zone may use.

        Args:
            bounds: for each zone whose target applies, the seconds that a step may take, shortest first.
            prompts: the prompts that zones have to compute.
            budget: maximum number of prompt tokens in a step.
            chunk: minimum number of tokens with which a prompt is begun.

        Returns:
            The plan, or None if the step is not bounded.
        """
        if not self._times.is_known:
            return None
        decodes = self._decodes()
        bounds = {
            zone: bound
            for zone, bound in bounds.items()
            if self._note_alone(zone, decodes, prompts) <= OUT_OF_REACH * bound
        }
        if not bounds:
            return None
        pacing, load = Pacing[W](), StepLoad()
        # Leave out bounds that steps can't meet at all, so that no zone with a target is delayed for them.
        smallest = self._times.estimate(StepLoad(1))
        reachable = {zone: bound for zone, bound in bounds.items() if smallest <= OUT_OF_REACH * bound}
        overdue = self._overdue(prompts)
        # A zone whose prompts were skipped too often gets a chunk even if other zones' prompts would fill the step.
        kept = 0 if overdue is None else min(prompts[overdue].at_once, budget, prompts[overdue].tokens)
        generates = False
        for zone in bounds:
            others = min((bound for each, bound in reachable.items() if each is not zone), default=inf)
            if zone is overdue:
                kept = 0
            left = budget - load.prompt_tokens - kept
            own = prompts.get(zone)
            goes_on = zone is overdue or not (load.decodes or load.prompt_tokens)
            at_least = own.at_once if own is not None and goes_on else 0
            generating = decodes.pop(zone, ())
            generates = generates or bool(generating)
            if own is not None and generating:
                left = min(left, self._own_tokens(load, zone, own, generating))
            self._add_prompts(pacing, load, zone, own, left, at_least, others)
            self._add_decodes(pacing, load, generating, others)
        bound = self._bound_of_others(load, min(bounds.values()), generates=generates)
        bound = min(bound, self._targets.left_for_first_tokens(bounds))
        pacing.bound = min(bounds.values()) if bound <= min(bounds.values()) else None
        rest = [work for works in decodes.values() for work in works]
        self._add_decodes(pacing, load, rest, bound)
        waiting = {zone: each for zone, each in prompts.items() if zone not in bounds and each.tokens}
        if overdue in waiting:
            pacing.overdue, pacing.of_overdue = overdue, kept
            pacing.may_go_on.add(overdue)
        self._leave_to_others(pacing, load, waiting, budget - load.prompt_tokens - kept, chunk, bound)
        for zone in prompts:
            self._starved[zone] = self._starved.get(zone, 0) + 1
        return pacing

    def end_step(self, pacing: Pacing[W] | None, computed: set[Zone]) -> None:
        """Note which requests a step skipped, and which zones had prompts computed in it.

        Args:
            pacing: the plan of the step; None if it was not bounded.
            computed: zones whose prompts were computed.
        """
        if pacing is None:
            self._sat_out.clear()
            self._starved.clear()
            return
        self._sat_out = {work: self._sat_out.get(work, 0) + 1 for work in pacing.sit_out}
        served = computed | pacing.may_go_on
        self._starved = {zone: steps for zone, steps in self._starved.items() if zone.requests and zone not in served}

    def _decodes(self) -> dict[Zone, list[W]]:
        """Returns the running requests that generate, by zone."""
        decodes: dict[Zone, list[W]] = {}
        in_prompts = set(self._engine.in_prompts())
        for work in self._engine.running:
            if work not in in_prompts:
                decodes.setdefault(work.zone, []).append(work)
        return decodes

    def _note_alone(self, zone: Zone, decodes: Mapping[Zone, Sequence[W]], prompts: Mapping[Zone, Prompts]) -> float:
        """Note how long the requests of a zone with a target take alone.

        Returns:
            The predicted seconds of the shortest step for the zone's prompts or, if it has none, of a step with all its
            generating requests. If this exceeds the zone's bound, it is useless to skip work of other zones.
        """
        own = prompts.get(zone)
        if own is not None and own.tokens:
            self._note_prompts(zone, own, len(decodes.get(zone, ())))
            # A prompt may take several steps, so the shortest step has one prompt token.
            return self._times.estimate(StepLoad(1))
        load = StepLoad()
        for work in decodes.get(zone, ()):
            load.add_decode(self._engine.tokens_each, self._engine.tokens_computed(work))
        seconds = self._times.estimate(load)
        if load.decodes:
            alone = self._latency.alone.setdefault(zone, Alone())
            alone.requests, alone.step_seconds = load.decodes, seconds
        return seconds

    def _note_prompts(self, zone: Zone, own: Prompts, generating: int) -> None:
        if self._times.knows(has_prompts=True):
            load = StepLoad()
            load.add_prompt(max(1, round(own.expected)), own.computed)
            prefill = self._waiting_tokens(zone, own, generating) * self._times.seconds_per_prompt_token(own.computed)
            own_requests = self._targets.own_requests(zone)
            own_requests.note_prompts(self._times.estimate(load), prefill)
            alone = self._latency.alone.setdefault(zone, Alone())
            alone.prompt_steps, alone.prefill_seconds = self._prompt_steps(zone), own_requests.prefill_seconds

    def _bound_of_others(self, load: StepLoad, bound: float, *, generates: bool) -> float:
        """Returns the seconds up to which zones without targets may fill a step.

        Args:
            load: the work of zones with targets in the step.
            bound: the minimum of the bounds for these zones, in seconds.
            generates: whether a zone with a target generates, so that the step takes the time between two tokens.
        """
        filled = (1.0 - self._margin.share) * bound
        if not load.has_prompts:
            return filled
        alone = self._times.estimate(load)
        added = alone + BESIDE_OWN_PROMPTS * bound
        return max(alone, min(added, filled)) if generates and alone <= bound else added

    def _own_tokens(self, load: StepLoad, zone: Zone, own: Prompts, generating: Sequence[W]) -> int:
        """Returns how many tokens of a zone's prompts a step may compute if the zone also generates.

        That many tokens fit into the zone's token time. If the zone has many waiting prompts, the step takes a fixed
        fraction of them instead, so that their backlog does not grow.

        Args:
            load: work that the step computes already.
            zone: a zone with a target.
            own: the zone's prompts.
            generating: the zone's running requests that generate.
        """
        target = zone.spec.latency.token_time_seconds
        if target is None:
            return own.tokens
        step = replace(load)
        for work in generating:
            step.add_decode(self._engine.tokens_each, self._engine.tokens_computed(work))
        # Other zones get a part of the step, too.
        bound = (1.0 - self._margin.share - BESIDE_OWN_PROMPTS) * target
        within = self._tokens_within(step, own.computed, bound)
        part = ceil(self._waiting_tokens(zone, own, len(generating)) / self._prompt_steps(zone))
        return max(within, part, own.at_once)

    def _waiting_tokens(self, zone: Zone, own: Prompts, generating: int) -> float:
        """Returns the estimated number of tokens to compute for all prompts of a zone.

        Only as many prompts as one step could compute are examined. The others are assumed to have the same mean.

        Args:
            zone: a zone with a target.
            own: the zone's examined prompts.
            generating: number of the zone's running requests that generate.
        """
        return own.expected / own.count * max(own.count, zone.requests - generating)

    def _prompt_steps(self, zone: Zone) -> int:
        """Returns the number of steps over which a generating zone may spread its waiting prompts."""
        targets = zone.spec.latency
        if targets.token_time_seconds is None:
            return 1
        return own_prompt_steps(
            targets.token_time_seconds, targets.first_token_seconds, steps_in_flight=self._engine.depth
        )

    def _add_prompts(
        self,
        pacing: Pacing[W],
        load: StepLoad,
        zone: Zone,
        own: Prompts | None,
        budget: int,
        at_least: int,
        bound: float,
    ) -> None:
        """Add the prompts of a zone with a target to a step, within the bounds of other such zones."""
        if own is not None and own.tokens:
            count = max(at_least, self._tokens_within(load, own.computed, bound))
            count = pacing.prompt_tokens[zone] = min(count, own.tokens, budget)
            if count >= min(own.at_once, own.tokens):
                pacing.may_go_on.add(zone)
            load.add_prompt(count, own.computed)

    def _add_decodes(self, pacing: Pacing[W], load: StepLoad, works: Sequence[W], bound: float) -> None:
        """Add generating requests as long as the step stays within the bound. Steps skip the other requests in turn."""
        each, seconds = self._engine.tokens_each, self._times.estimate(load)
        in_turn = sorted(works, key=lambda work: -self._sat_out.get(work, 0))
        for work in in_turn:
            computed = self._engine.tokens_computed(work)
            longer = seconds + self._times.seconds_per_decode(each, computed, has_prompts=load.has_prompts)
            is_overdue = work is in_turn[0] and self._sat_out.get(work, 0) >= SITS_OUT_AT_MOST
            # An empty step helps no request.
            if is_overdue or longer <= bound or not (load.decodes or load.prompt_tokens):
                seconds = longer
                load.add_decode(each, computed)
            else:
                pacing.sit_out.add(work)

    def _leave_to_others(
        self, pacing: Pacing[W], load: StepLoad, waiting: Mapping[Zone, Prompts], budget: int, chunk: int, bound: float
    ) -> None:
        """Leave the rest of the step to the prompts of other zones."""
        if not waiting:
            return
        context = max(each.computed for each in waiting.values())
        count = min(budget, self._tokens_within(load, context, bound))
        is_empty = not (load.decodes or load.prompt_tokens or pacing.of_overdue)
        at_once = max(each.at_once for each in waiting.values())
        least = max(chunk, min(each.chunk for each in waiting.values()))
        pacing.of_others = count if count >= least else min(budget, at_once) if is_empty else 0

    def _overdue(self, prompts: Mapping[Zone, Prompts]) -> Zone | None:
        """Returns the zone whose prompts were skipped for the most steps in a row; None if none is over the limit."""
        zone = max(prompts, key=lambda zone: self._starved.get(zone, 0), default=None)
        return None if zone is None or self._starved.get(zone, 0) < SITS_OUT_AT_MOST else zone

    def _tokens_within(self, load: StepLoad, computed: int, bound: float) -> int:
        """Estimate the number of prompt tokens that can be added to a step without exceeding the bound."""
        step_tokens = self._engine.step_tokens or 0
        if bound == inf:
            return step_tokens
        within_reach = min(step_tokens, max(0, self._times.reach(bound) - load.prompt_tokens))
        if not self._times.knows(has_prompts=True):
            return within_reach
        with_prompt = StepLoad(max(1, load.prompt_tokens), load.decodes, load.attention)
        left = bound - self._times.estimate(with_prompt)
        each = self._times.seconds_per_prompt_token(computed)
        if left <= 0.0:
            return 0
        return int(min(left / each, within_reach)) if each > 0 else within_reach

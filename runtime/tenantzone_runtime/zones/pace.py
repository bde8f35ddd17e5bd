"""The pace of steps: what others may add to a step while a zone with a latency target is there.

A target is a bound on how long steps take. While such a zone has requests, or may have one again soon, a step takes
tokens of other zones only as far as its predicted time stays within the bound; those that generate sit out steps in
turn where even they are too many. A step in which the zone itself has a prompt is nearly its own, and where the zone
generates, too, its prompts are cut so that they do not make its own steps longer than its target. What is promised so
is in `latency_bounds`.

Nobody is held up for nothing: not before enough steps were seen to predict one, nor where the zone's own requests alone
take much longer than its target. And whoever has sat out for long is computed whatever the bound says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Final, Generic

from tenantzone_runtime.zones.deficits import CHUNK
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.latency import Alone, Latency
from tenantzone_runtime.zones.latency_bounds import BESIDE_OWN_PROMPTS, OWN_PROMPT_STEPS
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.margin import Margin
from tenantzone_runtime.zones.pauses import Pauses
from tenantzone_runtime.zones.step_time import StepLoad, StepTimes
from tenantzone_runtime.zones.steps_in_flight import StepsInFlight
from tenantzone_runtime.zones.zone import Zone

OUT_OF_REACH: Final = 1.25
"""A target is given up where the zone's own requests alone take so many times as long."""
SITS_OUT_AT_MOST: Final = 32
"""Steps after which whoever sat them out is computed, one in a step."""


@dataclass(slots=True)
class Prompts:
    """What a zone has to compute of prompts, of running requests and of those that may begin."""

    tokens: int = 0
    expected: float = 0.0
    """How many of these will be computed, if as large a part of the waiting prompts is cached as was of late."""
    computed: int = 0
    """Tokens of the first of these that are computed already: each further one is attended to them."""
    chunk: int = 1
    """How many tokens of it a step computes at least, or none."""

    @property
    def at_once(self) -> int:
        """Tokens of the first that are computed where it is to go on whatever a bound says."""
        return max(CHUNK, self.chunk)


@dataclass(slots=True)
class Pacing(Generic[W]):
    """What targets leave of a step."""

    sit_out: set[W] = field(default_factory=set)
    """Requests that generate and are not computed in this step."""
    prompt_tokens: dict[Zone, int] = field(default_factory=dict)
    """Of prompts of zones with a target."""
    of_others: int = 0
    """Tokens of prompts of all other zones together."""
    overdue: Zone | None = None
    """The one of these whose prompts were not computed for so long that they are now, ..."""
    of_overdue: int = 0
    """... with so many tokens at least, whatever is left."""
    bound: float | None = None
    """Seconds that other zones are not to exceed in the step; None: zones with targets exceed them alone."""
    may_go_on: set[Zone] = field(default_factory=set)
    """Zones with tokens enough for their prompts to go on: if they do not, it is for another reason."""


class _Own:
    """What is known of the requests of one zone with a target."""

    def __init__(self) -> None:
        self.pauses = Pauses()
        self.first_token_seconds = 0.0
        """How long the zone's prompts take alone, of late."""
        self.hit_share = 0.0
        """The part of its prompts that was found cached, of late."""
        self._prompt_tokens = 0
        self._hit_tokens = 0

    def note_first_token(self, seconds: float) -> None:
        """Notes how long a step with the zone's waiting prompts is predicted to take alone."""
        known = self.first_token_seconds
        self.first_token_seconds = known + (seconds - known) / 8 if known else seconds

    def look_at_hits(self, zone: Zone) -> None:
        """Notes what was found cached of the prompts that were admitted since the last call."""
        prompt, hit = zone.counters.prompt_tokens, zone.counters.prefix_hit_tokens
        if prompt > self._prompt_tokens:
            share = (hit - self._hit_tokens) / (prompt - self._prompt_tokens)
            self.hit_share += (min(max(share, 0.0), 1.0) - self.hit_share) / 8
            self._prompt_tokens, self._hit_tokens = prompt, hit


class Pace(Generic[W]):
    """Bounds steps for the zones with latency targets.

    Args:
        ledger: of all zones.
        engine: whose steps.
        times: predicts them.
        latency: gets the time that a zone's requests take alone.
        in_flight: the steps that have not ended.
        margin: the part of each bound that is left unused.
    """

    def __init__(
        self,
        ledger: Ledger,
        engine: Engine[W],
        times: StepTimes,
        latency: Latency,
        in_flight: StepsInFlight,
        margin: Margin,
    ) -> None:
        self._ledger = ledger
        self._engine = engine
        self._times = times
        self._latency = latency
        self._in_flight = in_flight
        self._margin = margin
        self._sat_out: dict[W, int] = {}
        """Steps in a row, for each request that sat out the last one."""
        self._starved: dict[Zone, int] = {}
        """The same for zones with prompts."""
        self._own: dict[Zone, _Own] = {}
        """What is known of the requests of each zone with a target."""

    def bounds(self) -> dict[Zone, float]:
        """Returns the zones whose targets count now, with the seconds that a step may take for each, shortest first."""
        now, targets = self._ledger.now, self._ledger.totals.with_targets
        if len(self._own) > len(targets):
            self._own = {zone: own for zone, own in self._own.items() if zone in targets}
        left = self._in_flight.seconds_left(now)
        bounds = {zone: self._bound(zone, left) for zone in targets if self._may_need_steps(zone, now)}
        return dict(sorted(bounds.items(), key=lambda each: each[1]))

    def hit_share(self, zone: Zone) -> float:
        """Returns the part of a zone's prompts that was found cached of late; 0 for a zone without a target."""
        own = self._own.get(zone)
        return 0.0 if own is None else own.hit_share

    def _may_need_steps(self, zone: Zone, now: float) -> bool:
        """Returns whether the zone has requests, or had within its idle window and within its usual pauses."""
        own = self._own.setdefault(zone, _Own())
        own.look_at_hits(zone)
        own.pauses.note(now, since=None if zone.requests else zone.last_active)
        return bool(zone.requests) or now - zone.last_active <= min(zone.spec.idle.after_seconds, own.pauses.longest)

    def _bound(self, zone: Zone, left: float) -> float:
        """Returns the seconds that a step may take for the zone's targets, no fewer than its own prompts take alone.

        Args:
            zone: with a target.
            left: predicted seconds until the steps in flight have ended.
        """
        targets = zone.spec.latency
        bound = inf if targets.token_time_seconds is None else targets.token_time_seconds
        if targets.first_token_seconds is not None:
            own = self._own[zone].first_token_seconds
            # A request that arrives now waits for the steps in flight, this one among them, and for its own.
            at_most = targets.first_token_seconds - own
            share = at_most / (self._engine.depth + 2 * BESIDE_OWN_PROMPTS)
            bound = min(bound, max(own, min(share, at_most - left)))
        return bound

    def plan(
        self, bounds: Mapping[Zone, float], prompts: Mapping[Zone, Prompts], budget: int, chunk: int
    ) -> Pacing[W] | None:
        """What of a step is left to whom.

        Args:
            bounds: the seconds that a step may take, for zones whose targets count, the shortest first.
            prompts: what zones have to compute of prompts.
            budget: tokens of prompts that the engine computes in a step.
            chunk: with how many of them a prompt is begun at least.

        Returns:
            None where nobody is bounded.
        """
        if not self._times.is_known:
            return None
        decodes = self._decodes()
        bounds = {zone: bound for zone, bound in bounds.items() if self._is_in_reach(bound, zone, decodes, prompts)}
        if not bounds:
            return None
        pacing, load = Pacing[W](), StepLoad()
        reachable = self._reachable(bounds)
        overdue = self._overdue(prompts)
        # Whoever has waited for long gets a chunk even where others' prompts would fill the step.
        kept = 0 if overdue is None else min(prompts[overdue].at_once, budget, prompts[overdue].tokens)
        kept_to = (1.0 - self._margin.share) * min(bounds.values())
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
        bound = kept_to
        if load.has_prompts:
            alone = self._times.estimate(load)
            bound = alone + BESIDE_OWN_PROMPTS * min(bounds.values())
            if generates and alone <= min(bounds.values()):
                bound = max(alone, min(bound, kept_to))
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
        """Note who sat out a step, and which zones had prompts computed in it.

        Args:
            pacing: what was left to whom; None: nobody was bounded.
            computed: zones of which prompts were computed.
        """
        if pacing is None:
            self._sat_out.clear()
            self._starved.clear()
            return
        self._sat_out = {work: self._sat_out.get(work, 0) + 1 for work in pacing.sit_out}
        served = computed | pacing.may_go_on
        self._starved = {zone: steps for zone, steps in self._starved.items() if zone.requests and zone not in served}

    def _decodes(self) -> dict[Zone, list[W]]:
        """The running requests that generate, by zone."""
        decodes: dict[Zone, list[W]] = {}
        in_prompts = set(self._engine.in_prompts())
        for work in self._engine.running:
            if work not in in_prompts:
                decodes.setdefault(work.zone, []).append(work)
        return decodes

    def _is_in_reach(
        self, bound: float, zone: Zone, decodes: Mapping[Zone, Sequence[W]], prompts: Mapping[Zone, Prompts]
    ) -> bool:
        """Whether it helps the zone that others sit out: its prompts, or that what it generates takes no longer."""
        own = prompts.get(zone)
        if own is not None and own.tokens:
            self._note_first_token(zone, own)
            # A prompt takes as long as it does; a step that takes too long with one token of it helps nobody.
            return self._times.estimate(StepLoad(1)) <= OUT_OF_REACH * bound
        load = StepLoad()
        for work in decodes.get(zone, ()):
            load.add_decode(self._engine.tokens_each, self._engine.tokens_computed(work))
        seconds = self._times.estimate(load)
        if load.decodes:
            alone = self._latency.alone.setdefault(zone, Alone())
            alone.requests, alone.step_seconds = load.decodes, seconds
        return seconds <= OUT_OF_REACH * bound

    def _reachable(self, bounds: Mapping[Zone, float]) -> dict[Zone, float]:
        """The bounds that steps can keep at all: for the others no zone with a target of its own is held up."""
        smallest = self._times.estimate(StepLoad(1))
        return {zone: bound for zone, bound in bounds.items() if smallest <= OUT_OF_REACH * bound}

    def _note_first_token(self, zone: Zone, own: Prompts) -> None:
        if self._times.knows(has_prompts=True):
            load = StepLoad()
            load.add_prompt(max(1, round(own.expected)), own.computed)
            seconds = self._times.estimate(load)
            self._own[zone].note_first_token(seconds)
            alone = self._latency.alone.setdefault(zone, Alone())
            prefill = seconds - self._times.estimate(StepLoad(1))
            alone.prefill_seconds += (prefill - alone.prefill_seconds) / 8

    def _own_tokens(self, load: StepLoad, zone: Zone, own: Prompts, generating: Sequence[W]) -> int:
        """Returns the tokens of a zone's prompts that a step may compute beside what the zone generates.

        They fit into the zone's token time. Of many prompts the step takes a fixed part instead, so that the backlog
        of a zone whose prompts need more than that does not grow.

        Args:
            load: what the step computes already.
            zone: with a target.
            own: its prompts.
            generating: its running requests that generate.
        """
        target = zone.spec.latency.token_time_seconds
        if target is None:
            return own.tokens
        step = replace(load)
        for work in generating:
            step.add_decode(self._engine.tokens_each, self._engine.tokens_computed(work))
        within = self._tokens_within(step, own.computed, (1.0 - self._margin.share) * target)
        return max(within, ceil(own.expected / self._own_steps(zone, target)), own.at_once)

    def _own_steps(self, zone: Zone, target: float) -> int:
        """Returns the number of steps over which a zone's prompts may be spread: fewer with a first-token target."""
        first = zone.spec.latency.first_token_seconds
        if first is None:
            return OWN_PROMPT_STEPS
        return min(max(1, int(first / target) - self._engine.depth), OWN_PROMPT_STEPS)

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
        """Add requests that generate as far as the step stays within the bound; the others sit it out, in turn."""
        each, seconds = self._engine.tokens_each, self._times.estimate(load)
        in_turn = sorted(works, key=lambda work: -self._sat_out.get(work, 0))
        for work in in_turn:
            computed = self._engine.tokens_computed(work)
            longer = seconds + self._times.seconds_per_decode(each, computed, has_prompts=load.has_prompts)
            is_overdue = work is in_turn[0] and self._sat_out.get(work, 0) >= SITS_OUT_AT_MOST
            # An empty step helps nobody.
            if is_overdue or longer <= bound or not (load.decodes or load.prompt_tokens):
                seconds = longer
                load.add_decode(each, computed)
            else:
                pacing.sit_out.add(work)

    def _leave_to_others(
        self, pacing: Pacing[W], load: StepLoad, waiting: Mapping[Zone, Prompts], budget: int, chunk: int, bound: float
    ) -> None:
        """Leave to the prompts of other zones what is left of the step."""
        if not waiting:
            return
        context = max(each.computed for each in waiting.values())
        count = min(budget, self._tokens_within(load, context, bound))
        is_empty = not (load.decodes or load.prompt_tokens or pacing.of_overdue)
        at_once = max(each.at_once for each in waiting.values())
        least = max(chunk, min(each.chunk for each in waiting.values()))
        pacing.of_others = count if count >= least else min(budget, at_once) if is_empty else 0

    def _overdue(self, prompts: Mapping[Zone, Prompts]) -> Zone | None:
        """The zone whose prompts were not computed for the longest time, if that was for too long."""
        zone = max(prompts, key=lambda zone: self._starved.get(zone, 0), default=None)
        return None if zone is None or self._starved.get(zone, 0) < SITS_OUT_AT_MOST else zone

    def _tokens_within(self, load: StepLoad, computed: int, bound: float) -> int:
        """The tokens of a prompt that a step takes without exceeding the bound, as far as that can be told."""
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

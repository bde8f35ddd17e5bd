"""The pace of steps: what others may add to a step while a zone with a latency target is there.

A target is a bound on how long steps take. While such a zone has requests, or had within its ``idle.after``, a step
takes tokens of other zones only as far as its predicted time stays within the bound; those that generate sit out steps
in turn where even they are too many. A step in which the zone itself has a prompt is nearly its own. So with ``d``
steps in flight its first token comes after at most ``d`` steps of others', and one that is a little longer than alone.

Nobody is held up for nothing: not before enough steps were seen to predict one, nor where the zone's own requests alone
take much longer than its target. And whoever has sat out for long is computed whatever the bound says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, Generic

from tenantzone_runtime.zones.deficits import CHUNK
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.latency import Latency
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.step_time import StepLoad, StepTimes
from tenantzone_runtime.zones.zone import Zone

KEPT_FREE: Final = 0.05
"""Part of a bound that is left empty: predictions are wrong by some percent, and half of the time to the short side."""
BESIDE_FIRST_TOKEN: Final = 0.125
"""Part of a bound that others may add to a step in which a zone with a target has a prompt."""
OUT_OF_REACH: Final = 1.25
"""A target is given up where the zone's own requests alone take so many times as long."""
SITS_OUT_AT_MOST: Final = 32
"""Steps after which whoever sat them out is computed, one in a step."""


@dataclass(slots=True)
class Prompts:
    """What a zone has to compute of prompts, of running requests and of those that may begin."""

    tokens: int = 0
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
    may_go_on: set[Zone] = field(default_factory=set)
    """Zones with tokens enough for their prompts to go on: if they do not, it is for another reason."""


class Pace(Generic[W]):
    """Bounds steps for the zones with latency targets.

    Args:
        ledger: of all zones.
        engine: whose steps.
        times: predicts them.
        latency: is told how long a zone's requests take alone.
    """

    def __init__(self, ledger: Ledger, engine: Engine[W], times: StepTimes, latency: Latency) -> None:
        self._ledger = ledger
        self._engine = engine
        self._times = times
        self._latency = latency
        self._sat_out: dict[W, int] = {}
        """Steps in a row, for each request that sat out the last one."""
        self._starved: dict[Zone, int] = {}
        """The same for zones with prompts."""
        self._first_token_seconds: dict[Zone, float] = {}
        """How long the prompts of a zone with a target take alone, of late."""

    def bounds(self) -> dict[Zone, float]:
        """The zones whose targets count now, with the seconds that a step may take for each, the shortest first."""
        now, targets = self._ledger.now, self._ledger.totals.with_targets
        if len(self._first_token_seconds) > len(targets):
            known = self._first_token_seconds
            self._first_token_seconds = {zone: seconds for zone, seconds in known.items() if zone in targets}
        bounds = {
            zone: self._bound(zone)
            for zone in targets
            if zone.requests or now - zone.last_active <= zone.spec.idle.after_seconds
        }
        return dict(sorted(bounds.items(), key=lambda each: each[1]))

    def _bound(self, zone: Zone) -> float:
        """Seconds that a step may take for the zone's targets; no fewer than its own prompts take alone."""
        targets = zone.spec.latency
        bound = inf if targets.token_time_seconds is None else targets.token_time_seconds
        if targets.first_token_seconds is not None:
            own = self._first_token_seconds.get(zone, 0.0)
            waits = self._engine.depth + 2 * BESIDE_FIRST_TOKEN
            bound = min(bound, max(own, (targets.first_token_seconds - own) / waits))
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
        if not self._times.knows(has_prompts=False):
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
        for zone in bounds:
            others = min((bound for each, bound in reachable.items() if each is not zone), default=inf)
            if zone is overdue:
                kept = 0
            left = budget - load.prompt_tokens - kept
            own = prompts.get(zone)
            goes_on = zone is overdue or not (load.decodes or load.prompt_tokens)
            at_least = own.at_once if own is not None and goes_on else 0
            self._add_prompts(pacing, load, zone, own, left, at_least, others)
            self._add_decodes(pacing, load, decodes.pop(zone, ()), others)
        if load.has_prompts:
            bound = self._seconds(load) + BESIDE_FIRST_TOKEN * min(bounds.values())
        else:
            bound = (1.0 - KEPT_FREE) * min(bounds.values())
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
            return self._seconds(StepLoad(1)) <= OUT_OF_REACH * bound
        load = StepLoad()
        for work in decodes.get(zone, ()):
            load.add_decode(self._engine.tokens_each, self._engine.tokens_computed(work))
        seconds = self._seconds(load)
        if load.decodes:
            self._latency.alone[zone] = load.decodes, seconds
        return seconds <= OUT_OF_REACH * bound

    def _reachable(self, bounds: Mapping[Zone, float]) -> dict[Zone, float]:
        """The bounds that steps can keep at all: for the others no zone with a target of its own is held up."""
        smallest = self._seconds(StepLoad(1))
        return {zone: bound for zone, bound in bounds.items() if smallest <= OUT_OF_REACH * bound}

    def _note_first_token(self, zone: Zone, own: Prompts) -> None:
        if self._times.knows(has_prompts=True):
            load = StepLoad()
            load.add_prompt(own.tokens, own.computed)
            known = self._first_token_seconds.get(zone)
            seconds = self._seconds(load)
            self._first_token_seconds[zone] = seconds if known is None else known + (seconds - known) / 8

    def _seconds(self, load: StepLoad) -> float:
        """The predicted time; of prompts before enough were seen, that of a step without."""
        predicted = self._times.predict(load)
        if predicted is None:
            predicted = self._times.predict(StepLoad(0, load.decodes, load.attention))
        assert predicted is not None, "nothing is paced before steps without prompts are known"
        return predicted

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
        each, seconds = self._engine.tokens_each, self._seconds(load)
        in_turn = sorted(works, key=lambda work: -self._sat_out.get(work, 0))
        for work in in_turn:
            computed = self._engine.tokens_computed(work)
            longer = seconds + self._seconds_per_decode(load, each, computed)
            is_overdue = work is in_turn[0] and self._sat_out.get(work, 0) >= SITS_OUT_AT_MOST
            # An empty step helps nobody.
            if is_overdue or longer <= bound or not (load.decodes or load.prompt_tokens):
                seconds = longer
                load.add_decode(each, computed)
            else:
                pacing.sit_out.add(work)

    def _seconds_per_decode(self, load: StepLoad, tokens: int, computed: int) -> float:
        has_prompts = load.has_prompts and self._times.knows(has_prompts=True)
        return self._times.seconds_per_decode(tokens, computed, has_prompts=has_prompts)

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
        left = bound - self._seconds(with_prompt)
        each = self._times.seconds_per_prompt_token(computed)
        if left <= 0.0:
            return 0
        return int(min(left / each, within_reach)) if each > 0 else within_reach

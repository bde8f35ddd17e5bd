"""The fake engine: a scheduler like vLLM's in what matters to zones, and no model.

It has a waiting queue per zone, a list of running requests, a budget of prompt tokens per step, chunked prefill,
decoding that takes one more block now and then, and preemption. A prompt's blocks are all taken on admission; vLLM only
asks whether they are there.

One step stands for ``tokens_per_step`` steps of decoding, so that long histories stay cheap. It differs from the vLLM
adapter in one point: room for a zone that is entitled to it is made in the moment when its request is looked at, and
not before the step. So the promise can be checked to the letter: an entitled request never waits for blocks.
"""

from collections import Counter
from dataclasses import dataclass

from bench.simulator.checks import Checks
from bench.simulator.pool import BlockPool
from bench.simulator.request import BLOCK_TOKENS, Request
from bench.simulator.waiting import Waiting
from tenantzone_contract.config import RuntimeConfig
from tenantzone_contract.report import WaitReason
from tenantzone_runtime.zones import preemption
from tenantzone_runtime.zones.audit import PreemptionReason, RefusalReason
from tenantzone_runtime.zones.fair_queue import INPUT, OUTPUT
from tenantzone_runtime.zones.zone import Zone


@dataclass(frozen=True, slots=True)
class Model:
    """How fast the engine is, and how much it takes on at once. A step lasts as long as its two parts together."""

    capacity: int = 4096
    """Blocks."""
    max_running: int = 128
    prompt_tokens_per_step: int = 65_536
    tokens_per_step: int = 32
    """Generated for each running request in one simulated step; at most a block."""
    prompt_tokens_per_second: float = 150_000.0
    seconds_per_token: float = 0.015
    """Of a decoding step, which gives each running request one token."""


class Engine:
    """One engine, from its start to its end.

    Args:
        model: its size and speed.
        now: simulated seconds.
        checks: what must hold.
    """

    def __init__(self, model: Model, now: float, checks: Checks) -> None:
        self.model = model
        self.now = now
        self.running: list[Request] = []
        self.waiting = Waiting(self._is_admissible, checks.fairness)
        self.finished: list[Request] = []
        """Since the last step began."""
        self.waits: Counter[WaitReason] = Counter()
        """How often a zone's next request was looked at and had to wait, by reason."""
        self._checks = checks
        self.pool = BlockPool(model.capacity, now, checks)
        self.tenancy = self.pool.tenancy
        self.ledger = self.pool.ledger

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting

    def apply(self, config: RuntimeConfig) -> None:
        """Enforce a config.

        Raises:
            ConfigError: it can't be held; what was enforced before still is.
        """
        self.pool.return_evicted(self.tenancy.apply(config, self.now))
        self._give_grace()

    def upkeep(self) -> None:
        """What time does to zones and loans; several times a second."""
        evictions = self.tenancy.upkeep(self.now, len(self.pool.free))
        self._checks.given_up(evictions)
        self.pool.return_evicted(evictions)

    def submit(self, request: Request) -> RefusalReason | None:
        """Take on a request. Returns why it is refused, if it is."""
        known = self.ledger.zones.get(request.tenant)
        spec_before = None if known is None else known.spec
        zone = self.tenancy.zone_for(request.tenant, self.now)
        if zone is None:
            return "unknown_tenant"
        if zone is known and zone.spec is not spec_before:
            # It was leaving, and came back with other limits.
            self._give_grace()
        room = zone.spec.quota.limit * BLOCK_TOKENS - request.prompt_tokens
        if room < 1:
            return "too_long"
        request.output_tokens = min(request.output_tokens, room)
        request.zone = zone
        self.tenancy.request_arrived(zone, self.now)
        self.waiting.add(request, zone)
        self._checks.submitted(request)
        return None

    def step(self) -> float:
        """Schedule and compute. Returns how long it took; 0: there was nothing to compute."""
        self.ledger.now = self.now
        self.finished = []
        self._take_back_overdue()
        for request in list(self.running):
            if request.running:
                self._grow(request)
        self._admit()
        return self._compute()

    def _give_grace(self) -> None:
        """Let requests in flight finish that need more than a limit which was lowered under them."""
        for zone in self.ledger.zones.values():
            zone.grace = 0
        for request in [*self.running, *self.waiting]:
            zone = zone_of(request)
            needed = request.blocks_for(request.prompt_tokens + request.output_tokens)
            if needed > zone.spec.quota.limit:
                zone.grace = max(zone.grace, needed)

    def _take_back_overdue(self) -> None:
        """Preempt requests that stand on loans past their grace."""
        for borrower in self.tenancy.past_grace():
            while borrower in self.tenancy.past_grace():
                index = preemption.youngest(map(zone_of, self.running), borrower)
                if index is None:
                    break
                self._preempt(self.running[index], "due", None)
                self.pool.return_evicted(self.tenancy.collect_due(len(self.pool.free)))

    def _grow(self, request: Request) -> None:
        """Take the blocks that a running request needs in this step, or send it back to wait."""
        missing = request.blocks_for(request.computed + self._next_output(request)) - len(request.blocks)
        if missing <= 0:
            return
        zone = zone_of(request)
        self._relieve(zone, missing)
        self._reclaim(zone, missing)
        if not request.running:
            return
        if self.pool.available_to(zone) >= missing:
            request.blocks += self.pool.take(zone, missing)
            return
        self._checks.denied(zone, missing)
        self._preempt(request, "own", zone)

    def _next_output(self, request: Request) -> int:
        """Tokens that the request generates in this step; it begins a block with the first token in it."""
        if request.computed < request.tokens:
            return 0
        left_in_block = BLOCK_TOKENS - request.tokens % BLOCK_TOKENS
        return min(self.model.tokens_per_step, left_in_block, request.output_tokens - request.generated)

    def _admit(self) -> None:
        """Take on waiting requests while there are budget and places."""
        budget = self.model.prompt_tokens_per_step - sum(each.tokens - each.computed for each in self.running)
        exhausted = False
        while budget > 0 and len(self.running) < self.model.max_running:
            request = self.waiting.pop_next()
            if request is None:
                exhausted = True
                break
            zone = zone_of(request)
            self.pool.admit(request, zone)
            if request.admitted is None:
                self._count_admission(request, zone)
            request.running = True
            self.running.append(request)
            budget -= request.tokens - request.computed
        self._checks.round_ended(self, exhausted=exhausted)
        self.waiting.end_round()

    def _count_admission(self, request: Request, zone: Zone) -> None:
        request.admitted = self.now
        request.hit_tokens = request.computed
        self._checks.fairness.charge(zone.account, INPUT * (request.prompt_tokens - request.hit_tokens))
        zone.counters.prompt_tokens += request.prompt_tokens
        zone.counters.prefix_query_tokens += request.prompt_tokens
        zone.counters.prefix_hit_tokens += request.hit_tokens

    def _is_admissible(self, request: Request) -> bool:
        """Whether the request gets its blocks now, after others have yielded if its zone is entitled to them."""
        zone = zone_of(request)
        self.tenancy.may_go_on(zone)
        # Without a hit it would need the most: if that fits there is no need to look one up.
        if request.blocks_to_admit <= self.pool.available_to(zone):
            return True
        count = self.pool.count_to_admit(request, self.pool.find_hits(request, zone))
        self._relieve(zone, count)
        if preemption.is_entitled(zone, count):
            self._reclaim(zone, count)
        if count <= self.pool.available_to(zone):
            return True
        self._checks.denied(zone, count)
        self.tenancy.must_wait(zone, count, len(self.pool.free))
        assert zone.wait_reason is not None
        self.waits[zone.wait_reason] += 1
        return False

    def _relieve(self, zone: Zone, count: int) -> None:
        """Evict what other active zones merely cache, if the zone may not take its blocks but may have that."""
        if self.pool.available_to(zone) < count:
            evictions = self.tenancy.relieve(zone, count, len(self.pool.free))
            self._checks.given_up(evictions)
            self.pool.return_evicted(evictions)

    def _reclaim(self, zone: Zone, count: int) -> None:
        """Preempt running requests until the zone may take ``count`` blocks, or nobody may yield."""
        while self.pool.available_to(zone) < count:
            index = preemption.choose_victim(map(zone_of, self.running), zone, count)
            if index is None:
                return
            victim = self.running[index]
            own = zone_of(victim) is zone
            self._preempt(victim, "own" if own else "reclaim", zone)

    def _preempt(self, victim: Request, reason: PreemptionReason, beneficiary: Zone | None) -> None:
        zone = zone_of(victim)
        self._checks.preempted(zone, reason, beneficiary)
        self.running.remove(victim)
        victim.running = False
        victim.preemptions += 1
        self.pool.release(victim, zone)
        zone.counters.preemptions += 1
        tenant = None if beneficiary is None else beneficiary.spec.tenant
        self.ledger.trail.preempted(zone.spec.tenant, reason, tenant)
        self.waiting.put_back(victim, zone)

    def _compute(self) -> float:
        """Prompts first come first served, a step's tokens for whoever decodes. Returns seconds."""
        budget, prompt_tokens, decoded = self.model.prompt_tokens_per_step, 0, 0
        for request in list(self.running):
            zone = zone_of(request)
            output = self._next_output(request)
            if output:
                request.generated += output
                request.computed += output
                decoded = max(decoded, output)
                self._checks.fairness.charge(zone.account, OUTPUT * output)
                zone.counters.generation_tokens += output
            else:
                chunk = min(budget - prompt_tokens, request.tokens - request.computed)
                request.computed += chunk
                prompt_tokens += chunk
            self.pool.remember_computed(request, zone)
            if request.generated >= request.output_tokens and request.computed >= request.tokens:
                self._finish(request, zone)
        return prompt_tokens / self.model.prompt_tokens_per_second + decoded * self.model.seconds_per_token

    def _finish(self, request: Request, zone: Zone) -> None:
        self.running.remove(request)
        request.running = False
        self.pool.release(request, zone)
        self.tenancy.request_finished(zone, self.now)
        self.pool.discard_if_gone(zone)
        if zone.grace:
            self._give_grace()
        self.finished.append(request)


def zone_of(request: Request) -> Zone:
    """The zone of a request that was taken on."""
    assert request.zone is not None
    return request.zone

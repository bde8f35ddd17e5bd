"""The simulated engine, which has the parts of vLLM that zones use, but no model.

It has a waiting queue per zone, a list of running requests, a budget of prompt tokens per step, chunked prefill, and
decoding that takes an additional block from time to time. It takes all blocks of a prompt on admission, while vLLM only
checks that they are available. The zone core's arbiter decides which requests are admitted, continue or are preempted,
through the same interface as with vLLM's adapter. One step stands for ``tokens_per_step`` decoding steps, so that long
histories are fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.simulator.checks import Checks
from bench.simulator.pool import BlockPool
from bench.simulator.request import BLOCK_TOKENS, Request
from bench.simulator.waiting import Waiting
from hack.harness.without_tiers import WithoutTiers
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.zones.audit.events import PreemptionReason, RefusalReason
from tenantzone_runtime.zones.blocks.eviction import Evictions
from tenantzone_runtime.zones.model.fair_queue import INPUT, OUTPUT
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.arbiter import Arbiter


@dataclass(frozen=True, slots=True)
class Model:
    """Speed and limits of the engine. A step takes the time of its prompt part plus the time of its decoding part."""

    capacity: int = 4096
    """Number of blocks."""
    headroom: int = 0
    """Number of blocks that must stay free or cached when a request is admitted while others run."""
    max_running: int = 128
    prompt_tokens_per_step: int = 65_536
    tokens_per_step: int = 32
    """Number of tokens generated for each running request in a simulated step; at most a block."""
    prompt_tokens_per_second: float = 150_000.0
    seconds_per_token: float = 0.015
    """Time of a decoding step, which gives each running request one token."""

    def steps_for(self, request: Request) -> int:
        """Returns the maximum number of steps of a request that runs alone and has no cache hits."""
        prompt = -(-request.tokens // self.prompt_tokens_per_step)
        output = -(-(request.output_tokens - request.generated) // self.tokens_per_step)
        # A simulated step never generates beyond the end of a block.
        return prompt + output + request.peak


class Engine(WithoutTiers):
    """One simulated engine, from start to restart, as the arbiter's ``zones.engine.Engine``, which decides nothing.

    Args:
        model: the engine's size and speed.
        now: the time of the start, in simulated seconds.
        checks: the checks of invariants.
    """

    def __init__(self, model: Model, now: float, checks: Checks) -> None:
        self.model = model
        self.now = now
        self.running: list[Request] = []
        self.waiting = Waiting()
        self.finished: list[Request] = []
        """Requests that finished in the last step."""
        self.failed: list[Request] = []
        """Requests that failed in the last step, because they could never have got the blocks that they waited for."""
        self.is_exhausted = False
        """Whether the last step had room for more requests, but no waiting request could get its blocks."""
        self._checks = checks
        self.pool = BlockPool(model.capacity, now, checks)
        self.tenancy = self.pool.tenancy
        self.ledger = self.pool.ledger
        self._arbiter = _WatchedArbiter(self, checks)
        self._unsatisfiable: set[Request] = set()
        """Waiting requests that can't be served under the current config."""
        self._chunks: dict[Request, int] = {}
        """Number of prompt tokens that this step computes, by request."""
        self.passed_over: set[Request] = set()
        """Running requests that were skipped in the last step."""

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting

    # Configs, time and requests

    def apply(self, config: RuntimeConfig) -> None:
        """Enforce a config."""
        self.pool.return_evicted(self.tenancy.apply(config, self.now))

    def upkeep(self) -> None:
        """Apply time-dependent changes of zones and loans; called several times a second."""
        self.return_evicted(self.tenancy.upkeep(self.now, self.free_blocks))

    def submit(self, request: Request) -> RefusalReason | None:
        """Queue a request, or refuse it; returns the reason of a refusal."""
        zone = self.tenancy.zone_for(request.tenant, self.now)
        if zone is None:
            return "unknown_tenant"
        # A zone can't get blocks that other zones never lend, even below its limit.
        blocks = min(zone.spec.quota.limit, self.ledger.totals.reachable(zone))
        room = blocks * BLOCK_TOKENS - request.prompt_tokens
        if room < 1:
            return "too_long"
        request.output_tokens = min(request.output_tokens, room)
        request.peak = request.blocks_for(request.prompt_tokens + request.output_tokens)
        request.zone = zone
        self.tenancy.request_arrived(zone, self.now)
        self._checks.submitted(request)
        self.waiting.add(request)
        if self.front(zone) is request:
            self._front_has_changed(zone)
        return None

    @property
    def waits_for_a_config(self) -> bool:
        """Whether nothing runs, and all next requests of zones can't be served under the current config."""
        return not self.running and all(self.front(zone) in self._unsatisfiable for zone in self.waiting.zones())

    # Steps

    def schedule(self) -> None:
        """Run the first half of a step, which decides the requests to compute."""
        self.ledger.now = self.now
        self.finished, self.failed = [], []
        self.passed_over.clear()
        self._chunks.clear()
        self._arbiter.begin_step()
        budget = self.model.prompt_tokens_per_step
        for request in self.running:
            self._grow(request)
            budget -= self._give_tokens(request, budget)
        self._admit(budget)
        self._arbiter.end_step()

    def compute(self) -> float:
        """Run the second half of a step, which computes parts of prompts, and tokens of decoding requests.

        Returns:
            The seconds that the step took; 0 if there was nothing to compute.
        """
        for request in self.failed:
            self._end(request)
        prompt_tokens, decoded = 0, 0
        for request in [each for each in self.running if each not in self.passed_over]:
            output = self._next_output(request)
            if output:
                request.generated += output
                request.computed += output
                decoded = max(decoded, output)
                self._checks.fairness.charge(request.zone.account, OUTPUT * output)
                request.zone.counters.generation_tokens += output
            else:
                chunk = self._chunks.get(request, 0)
                request.computed += chunk
                prompt_tokens += chunk
            self.pool.remember_computed(request)
            if request.generated >= request.output_tokens and request.computed >= request.tokens:
                self.running.remove(request)
                self.pool.release(request)
                self._end(request)
                self.finished.append(request)
        return prompt_tokens / self.model.prompt_tokens_per_second + decoded * self.model.seconds_per_token

    def _grow(self, request: Request) -> None:
        """Give a running request the blocks that it needs in this step, or skip it."""
        missing = self.blocks_to_continue(request)
        if missing and self._arbiter.may_continue(request, missing):
            request.blocks += self.pool.take(request, missing, growing=True)
        elif missing:
            self.passed_over.add(request)

    def _give_tokens(self, request: Request, budget: int) -> int:
        """Decide how much of a running request this step computes; returns the number of prompt tokens."""
        if not self.is_in_prompt(request):
            if not self._arbiter.tokens_for(request, 1):
                self.passed_over.add(request)
            return 0
        wanted = min(budget, self.tokens_left(request))
        chunk = self._chunks[request] = self._arbiter.tokens_for(request, wanted) if wanted else 0
        return chunk

    def _admit(self, budget: int) -> None:
        """Admit waiting requests while the step's token budget and seats last."""
        request = None
        while budget > 0 and (request := self._arbiter.admit_next()) is not None:
            self.waiting.remove_front(request.zone)
            self._front_has_changed(request.zone)
            self.pool.admit(request)
            if request.admitted is None:
                self._count_admission(request)
            budget -= self._give_tokens(request, budget)
            self.running.append(request)
        self.is_exhausted = budget > 0 and self.free_seats > 0

    def _count_admission(self, request: Request) -> None:
        request.admitted = self.now
        request.hit_tokens = request.computed
        self._checks.fairness.charge(request.zone.account, INPUT * (request.prompt_tokens - request.hit_tokens))
        counters = request.zone.counters
        counters.prompt_tokens += request.prompt_tokens
        counters.prefix_query_tokens += request.prompt_tokens
        counters.prefix_hit_tokens += request.hit_tokens

    def _next_output(self, request: Request) -> int:
        """Returns the number of tokens that the request generates in this step, at most up to the end of its block."""
        if request.computed < request.tokens:
            return 0
        left_in_block = BLOCK_TOKENS - request.tokens % BLOCK_TOKENS
        return min(self.model.tokens_per_step, left_in_block, request.output_tokens - request.generated)

    def _end(self, request: Request) -> None:
        self.tenancy.request_finished(request.zone, self.now)
        self.pool.discard_if_gone(request.zone)

    def _front_has_changed(self, zone: Zone) -> None:
        if zone in self.waiting:
            self._arbiter.waits(zone)
        else:
            self._arbiter.waits_no_more(zone)

    # The arbiter's interface

    def by_seniority(self) -> Sequence[Request]:
        return self.running

    @property
    def free_blocks(self) -> int:
        return len(self.pool.free)

    @property
    def headroom(self) -> int:
        return self.model.headroom

    @property
    def is_open(self) -> bool:
        return True

    @property
    def goes_on(self) -> bool:
        return True

    @property
    def seats(self) -> int:
        return self.model.max_running

    @property
    def free_seats(self) -> int:
        return self.seats - len(self.running)

    def needs(self) -> list[tuple[Request, int]]:
        return [(request, missing) for request in self.running if (missing := self.blocks_to_continue(request))]

    def is_running(self, request: Request) -> bool:
        return request in self.running

    def front(self, zone: Zone) -> Request:
        return self.waiting.front(zone)

    def fronts(self, zone: Zone, count: int) -> list[Request]:
        return self.waiting.fronts(zone, count)

    def blocks_at_most(self, request: Request) -> int:
        return request.blocks_to_admit

    def blocks_to_admit(self, request: Request) -> int:
        return self.pool.count_to_admit(request)

    def can_begin(self, request: Request) -> bool:
        return True

    def can_go_on(self, request: Request) -> bool:
        return True

    def blocks_to_continue(self, request: Request) -> int:
        return max(0, request.blocks_for(request.computed + self._next_output(request)) - len(request.blocks))

    @property
    def step_tokens(self) -> int:
        return self.model.prompt_tokens_per_step

    def chunk_tokens(self, request: Request) -> int:
        return 1

    @property
    def tokens_each(self) -> int:
        """Returns 0, because generation does not use the budget of prompt tokens here."""
        return 0

    @property
    def depth(self) -> int:
        return 1

    def in_prompts(self) -> list[Request]:
        return [request for request in self.running if self.is_in_prompt(request)]

    def is_in_prompt(self, request: Request) -> bool:
        return request.computed < request.tokens

    def tokens_left(self, request: Request) -> int:
        return request.tokens - request.computed

    def tokens_within(self, request: Request, blocks: int) -> int:
        """Returns all remaining tokens, because a prompt has all its blocks since its admission."""
        return self.tokens_left(request)

    def tokens_computed(self, request: Request) -> int:
        return request.computed

    def preempt(self, request: Request) -> None:
        self.running.remove(request)
        request.preemptions += 1
        self.pool.release(request)
        self.waiting.put_back(request)
        self._front_has_changed(request.zone)

    def warn(self, request: Request, warning: str) -> None:
        self._checks.failed(request, self.blocks_to_admit(request), warning, self.ledger, self.model.capacity)
        self._unsatisfiable.add(request)

    def fail(self, request: Request, error: str) -> None:
        zone = request.zone
        self._checks.failed(request, self.blocks_to_admit(request), error, self.ledger, self.model.capacity)
        self._unsatisfiable.discard(request)
        self.waiting.remove_front(zone)
        self._front_has_changed(zone)
        self.tenancy.refused(zone.name_in_journal, "too_long")
        self.failed.append(request)

    def return_evicted(self, evictions: Evictions) -> None:
        self._checks.given_up(evictions)
        self.pool.return_evicted(evictions)


class _WatchedArbiter(Arbiter[Request]):
    """The arbiter, extended by a check of each preemption.

    Args:
        engine: the engine of the requests.
        checks: the checks of invariants.
    """

    def __init__(self, engine: Engine, checks: Checks) -> None:
        super().__init__(engine.tenancy, engine)
        self._checks = checks

    def preempt(self, work: Request, reason: PreemptionReason, beneficiary: Zone | None) -> None:
        self._checks.preempted(work.zone, reason, beneficiary)
        super().preempt(work, reason, beneficiary)

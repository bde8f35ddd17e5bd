"""An engine core in a random life: vLLM's real scheduler, stepped as vLLM's engine core steps it."""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from math import inf
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from vllm.config import VllmConfig
from vllm.config.lora import LoRAConfig
from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, RequestStatus

from hack.harness.scheduler import (
    AnyToken,
    Driver,
    give_encoder,
    make_scheduler,
    prompt,
    with_drafts,
    with_flags,
)
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.fitting import grants
from tenantzone_runtime.housekeeping import turns
from tests.engine.clock import Clock
from tests.engine.histories.events import IMAGES, Abort, Declare, Flags, Forget, Pause, ResetCache, Send, Turns, Wait
from tests.engine.histories.invariants import Invariants
from tests.engine.histories.reckoning import longest
from tests.engine.tier_worker import TierWorker, give_disk, with_tiers


@dataclass(eq=False)
class Compilation:
    """A grammar that is being compiled."""

    future: Future
    turns: int
    """Turns of the engine until it is compiled."""
    fails: bool

    def end(self) -> None:
        """Reports the outcome, unless the request was aborted."""
        if not self.future.set_running_or_notify_cancel():
            return
        if self.fails:
            self.future.set_exception(ValueError("the grammar does not compile"))
        else:
            self.future.set_result(AnyToken())


class Engine:
    """One engine, from its start to its end.

    Args:
        config: shared by all engines, and not changed.
        flags: the flags of this engine.
        clock: the source of the engine's time.
    """

    def __init__(self, config: VllmConfig, flags: Flags, clock: Clock) -> None:
        self.flags = flags
        self.clock = clock
        config = _with_flags(config, flags)
        self.scheduler = make_scheduler(config, flags.capacity, window=flags.window, kinds=flags.kinds)
        if flags.encoder is not None:
            budget, cache = flags.encoder
            give_encoder(self.scheduler, budget=budget, cache=cache)
        self.driver = Driver(self.scheduler)
        chance = Random(flags.capacity)
        self._worker: TierWorker | None = None
        if flags.tiers is not None:
            self._worker = TierWorker(self.driver, Random(flags.tiers.chunks), flags.tiers.slowest)
            files = flags.tiers.files
            if files is not None:
                give_disk(self.scheduler, self._worker, files, Random(files), failing=flags.tiers.failing)
        self.driver.drafts = lambda most: chance.randint(0, most)
        self.invariants = Invariants(self.driver)
        self.requests: list[Request] = []
        """All requests that ever arrived."""
        self.compilations: list[Compilation] = []
        self.configs: list[Declare] = []
        """All configs that ever took effect."""
        self._in_flight: deque = deque()
        self._computed = 0
        """Tokens that the last step computed."""
        self._numbers = iter(range(1_000_000, 2_000_000))

    def live(self, event: object) -> None:
        """Runs one event."""
        match event:
            case Send():
                for _ in range(event.count):
                    self._send(event)
            case Turns():
                for _ in range(event.count):
                    self.turn()
                    self.pass_time(self.step_seconds)
            case Declare():
                self._declare(event)
            case Wait():
                self.pass_time(event.seconds)
            case Abort():
                self.abort(
                    [request for request in self.requests if not request.is_finished()][event.first :: event.every]
                )
            case Pause():
                self.scheduler.set_pause_state(event.state)
            case Forget():
                self._forget()
            case ResetCache():
                # Blocks that a load or a step in flight still writes can't be freed: vLLM refuses, with an error.
                may_fail = RuntimeError if self.flags.tiers is not None and event.with_running else ()
                with self.invariants.around_a_reset(), suppress(may_fail):
                    self.scheduler.reset_prefix_cache(reset_running_requests=event.with_running)
        self.driver.check()

    def _forget(self) -> None:
        for zone in list(self.scheduler.block_pool.ledger.zones.values()):
            self.scheduler.block_pool.evict(zone, "reset")
        memory = self.scheduler.connector.scheduler.manager.primary_tier
        for given_up in memory.tier.evict_all():
            memory._forget(given_up)

    def turn(self) -> bool:
        """Makes a turn, as vLLM's engine core does between two reads of its input. Returns whether a step computed."""
        for compilation in list(self.compilations):
            compilation.turns -= 1
            if compilation.turns <= 0:
                self.finish(compilation)
        computes = False
        if self.scheduler.has_requests():
            with self.invariants.around_a_schedule() as reported:
                step = self.driver.schedule()
                reported.output = step[0]
            self.driver.check()
            self._in_flight.append(step)
            self._computed = step[0].total_num_scheduled_tokens
            computes = self._computed > 0
            if len(self._in_flight) < self.flags.steps_in_flight and (computes or self.scheduler.has_requests()):
                return computes
        if self._in_flight:
            self._end_a_step()
        return computes

    def _end_a_step(self) -> None:
        output: SchedulerOutput
        output, result = self._in_flight.popleft()
        self.invariants.before_an_update(output, result)
        self.driver.update(output, result)
        if self.flags.steps_in_flight == 1:
            self.driver.draft(output)
        self.invariants.after_an_update()
        self.driver.check()

    @property
    def step_seconds(self) -> float:
        """Seconds that the last step takes."""
        return self.flags.step_seconds + self.flags.token_seconds * self._computed

    @property
    def is_computing(self) -> bool:
        """Whether a step that computes something is in flight: in a pipeline, others wait for its result."""
        return any(output.total_num_scheduled_tokens for output, _ in self._in_flight)

    @property
    def is_copying(self) -> bool:
        """Whether a copy from or to a tier, which takes some more steps, is in progress."""
        return self._worker is not None and self._worker.is_copying

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to do."""
        return not self._in_flight and not self.scheduler.requests and not self.scheduler.has_requests()

    def pass_time(self, seconds: float) -> None:
        """Advances the time; the housekeeper, which runs several times a second, runs at the end of it."""
        self.clock.seconds += seconds
        with self._pauses():
            self.scheduler.let_time_pass()
        self.driver.check()

    def abort(self, requests: list[Request]) -> None:
        """Aborts requests whose clients have gone."""
        self.scheduler.finish_requests([each.request_id for each in requests], RequestStatus.FINISHED_ABORTED)

    def finish(self, compilation: Compilation) -> None:
        self.compilations.remove(compilation)
        compilation.end()

    def _declare(self, event: Declare) -> None:
        config = make_config(len(self.configs) + 1, event.pool, event.zones)
        with self.invariants.around_a_config(has_pauses=self.flags.steps_in_pauses), self._pauses():
            self.scheduler.apply_config(config)
        held = zip(event.zones, grants(event.zones, self.flags.capacity), strict=True)
        expected = {zone.tenant: (grant.reserved, grant.limit) for zone, grant in held}
        assert expected.items() <= self.invariants.promises().items(), "I8: what fits is in force, and nothing else"
        self.configs.append(event)

    @contextmanager
    def _pauses(self) -> Iterator[None]:
        """Makes work outside of the steps pause after each zone, for a step, or never pause."""
        turn_seconds = 0.0 if self.flags.steps_in_pauses else inf
        pause = SimpleNamespace(sleep=lambda _: self.turn(), perf_counter=time.perf_counter)
        with patch.object(turns, "_TURN_SECONDS", turn_seconds), patch.object(turns, "time", pause):
            yield

    def _send(self, event: Send) -> None:
        number = next(self._numbers) if event.prefix is None else event.prefix
        tokens = prompt(event.blocks, seed=number, extra=event.extra)[: self.scheduler.max_model_len - 1]
        grammar = None
        if event.grammar is not None:
            grammar = Compilation(Future(), abs(event.grammar), event.grammar < 0)
            self.compilations.append(grammar)
            if not grammar.turns:
                self.finish(grammar)
        with self.invariants.around_an_arrival() as reported:
            reported.request = self.driver.send(
                event.tenant,
                tokens,
                max_tokens=event.max_tokens,
                arrival_time=self.clock.time(),
                priority=event.priority,
                prompt_logprobs=event.prompt_logprobs,
                user=event.user,
                images=self._images(event, len(tokens)),
                grammar=None if grammar is None else grammar.future,
                adapter=None if event.adapter is None else _adapter(event.adapter),
            )
            reported.may_fail = grammar is not None and grammar.fails
        self.requests.append(reported.request)

    def _images(self, event: Send, tokens: int) -> list[tuple[str, int, int]]:
        """Name, first token and length of each image that fits into a prompt of `tokens` tokens."""
        placed, end = [], 0
        for image in event.images:
            begin, length = end + image.gap, IMAGES[image.like]
            end = begin + length
            if end <= tokens:
                name = f"{image.like} {next(self._numbers)}" if image.is_new else image.like
                placed.append((name, begin, length))
        return placed

    def end(self) -> None:
        """The process ends."""
        self.scheduler.shutdown()

    def resume(self) -> None:
        self.scheduler.set_pause_state(PauseState.UNPAUSED)


def _adapter(number: int) -> LoRARequest:
    return LoRARequest(lora_name=f"adapter-{number}", lora_int_id=number, lora_path="/nowhere")


def _with_flags(config: VllmConfig, flags: Flags) -> VllmConfig:
    # As vLLM requires: a pool holds at least one request of the greatest length.
    drafted = 0 if flags.drafting is None else flags.drafting[1]
    max_model_len = longest(flags.capacity, flags.kinds, drafted, flags.steps_in_flight)
    config = with_flags(
        config,
        max_num_seqs=min(flags.seats, flags.batched_tokens),
        max_num_batched_tokens=flags.batched_tokens if flags.chunked else max(flags.batched_tokens, max_model_len),
        enable_chunked_prefill=flags.chunked,
        long_prefill_token_threshold=flags.long_prefill,
        watermark=flags.watermark,
        scheduler_reserve_full_isl=flags.whole_prompts,
        policy=flags.policy,
        disable_chunked_mm_input=flags.whole_images,
        async_scheduling=flags.steps_in_flight > 1,
    )
    if flags.steps_in_flight > 2:
        config.parallel_config = copy(config.parallel_config)
        config.parallel_config.pipeline_parallel_size = flags.steps_in_flight - 1
    if flags.tiers is not None:
        config = with_tiers(config, flags.tiers.chunks, len(flags.kinds) or 1)
    if flags.adapters is not None:
        config.lora_config = LoRAConfig(max_loras=flags.adapters, max_lora_rank=8)
    if flags.drafting is not None:
        config = with_drafts(config, *flags.drafting)
    config.model_config = copy(config.model_config)
    config.model_config.max_model_len = max_model_len
    config.cache_config = copy(config.cache_config)
    config.cache_config.enable_prefix_caching = flags.prefix_caching
    return config

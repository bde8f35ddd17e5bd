"""vLLM's async scheduler with zones.

vLLM's ``schedule()`` stays unchanged. The code around it adds the zones: requests are bound on arrival, the waiting
queue returns only admissible requests, free blocks are counted by zone, and vLLM skips a running request if its zone
may not take the blocks that the request needs. The zone core's arbiter decides which requests are admitted, continue or
are preempted.
"""

import logging
import time
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any

from vllm.distributed.kv_events import KVEventBatch
from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.engine.blocks.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.blocks.demand import Demand
from tenantzone_runtime.engine.blocks.encoder_cache import ZoneEncoderCacheManager
from tenantzone_runtime.engine.blocks.guard import Guard
from tenantzone_runtime.engine.blocks.kv_cache_manager import ZoneKVCacheManager
from tenantzone_runtime.engine.blocks.latencies import note_arrival
from tenantzone_runtime.engine.blocks.processed_tokens import ProcessedTokens
from tenantzone_runtime.engine.blocks.requests import (
    count_generated,
    enter_queue,
    leave_queue,
    outcome_of,
    state_of,
    zone_of,
)
from tenantzone_runtime.engine.blocks.whole_images import WholeImages
from tenantzone_runtime.engine.core.backported_hooks import HookCalls
from tenantzone_runtime.engine.core.beside_steps import BesideSteps
from tenantzone_runtime.engine.core.binding import Binder
from tenantzone_runtime.engine.core.early_requests import EarlyRequests
from tenantzone_runtime.engine.core.lower_tiers import tiers_of
from tenantzone_runtime.engine.core.media_requests import MediaRequests
from tenantzone_runtime.engine.core.step_watch import StepWatch, check_latency
from tenantzone_runtime.engine.core.zone_engine import ZoneEngine
from tenantzone_runtime.engine.errors import BindingError
from tenantzone_runtime.engine.grammars.grammar_compilation import cancel_compilation, compile_in_turns
from tenantzone_runtime.engine.grammars.grammar_masks import NOT_COMPILED, GrammarMasks
from tenantzone_runtime.engine.patches.adapter_weights import ADAPTERS
from tenantzone_runtime.engine.patches.refusals import mark
from tenantzone_runtime.engine.patches.scrubbing import check_scrub, model_needs_zeroing
from tenantzone_runtime.engine.patches.waking import connect_migration
from tenantzone_runtime.engine.queues.adapter_lines import AdapterLines
from tenantzone_runtime.engine.queues.load_queue import LoadQueue
from tenantzone_runtime.engine.queues.request_queue import ZoneRequestQueue
from tenantzone_runtime.engine.versions import check_supported, check_version
from tenantzone_runtime.zones.schedule.arbiter import Arbiter

logger = logging.getLogger(__name__)

COUNT_SECONDS = 0.5
"""Interval in seconds at which running requests' generated tokens are charged. Ended requests are charged at once."""

_RUNNING = RequestStatus.RUNNING
_LOADING = RequestStatus.WAITING_FOR_REMOTE_KVS


class ZoneAwareScheduler(HookCalls, AsyncScheduler):
    """An async scheduler with blocks, queues and preemption by zone.

    Every public method that vLLM calls holds ``zone_lock`` until it returns, so that the housekeeping thread can change
    zones between two calls. No other thread uses the lock.

    Args:
        seal_key: the key with which the frontend makes seals.
        scrub_blocks: whether the workers were prepared to zero blocks.
        args, kwargs: arguments of vLLM's scheduler.
    """

    kv_cache_manager: ZoneKVCacheManager
    waiting: ZoneRequestQueue
    encoder_cache_manager: ZoneEncoderCacheManager

    # Read by versions of vLLM that have the hook from docs/upstream.md.
    kv_cache_manager_cls = ZoneKVCacheManager
    block_pool_cls = ZoneBlockPool
    encoder_cache_manager_cls = ZoneEncoderCacheManager

    def __init__(self, *args: Any, seal_key: bytes = b"", scrub_blocks: bool = False, **kwargs: Any) -> None:
        check_version()
        super().__init__(*args, **kwargs)
        check_supported(self.vllm_config, self.kv_cache_config)
        self.zone_lock = RLock()
        manager = self.kv_cache_manager
        manager.lookahead, manager.sampled = self.num_lookahead_tokens, int(self.num_sampled_tokens_per_step)
        self.block_pool: ZoneBlockPool = manager.block_pool
        self.tenancy = self.block_pool.tenancy
        self._zones = self.tenancy.ledger.zones
        self.tiers = tiers_of(self.connector, self.vllm_config)
        self.tiers.know_blocks(self.block_pool)
        self.waiting = ZoneRequestQueue(self.policy, self.tiers.is_looking_up)
        self.block_pool.front = self.waiting.front
        self.encoder_cache_manager.tenancy = self.tenancy
        self.tenancy.ledger.departures.append(self.encoder_cache_manager.forget)
        self._demand = Demand(self)
        manager.drafting, manager.max_step_tokens = self._demand.drafting, int(self.max_num_scheduled_tokens)
        self._images = WholeImages(self)
        self._loads = loads = LoadQueue(
            self._has_landed, lambda request: engine.can_land(request), manager.admitted, self.waiting.load_has_ended
        )
        self.kv_holding_waiting = self.waiting.loads = loads
        self._media = MediaRequests()
        self._engine = engine = ZoneEngine(
            self,
            self.waiting,
            self.block_pool,
            manager,
            self._demand,
            loads,
            self._media,
            self.tiers.is_looking_up,
            self._fail_unsatisfiable,
        )
        self._arbiter: Arbiter[Request] = Arbiter(self.tenancy, engine)
        self.waiting.arbiter = self._arbiter
        self.encoder_cache_manager.room = self._arbiter.encoder
        self.waiting.adapters = AdapterLines(self.policy, engine.adapter, self._arbiter.may_have_slot)
        self.waiting.is_passed_over = self.deferred_waiting.add
        compile_in_turns(self.structured_output_manager, seal_key)
        self._masks = GrammarMasks(self.structured_output_manager)
        self._binder = Binder(seal_key, self.tenancy, self._demand)
        self._guard = Guard(manager, self._arbiter, self.end_with_error)
        self._watch = StepWatch(self, self._arbiter)
        self._early = EarlyRequests(self, loads, self._media)
        self._beside_steps = BesideSteps(self, self._early, self._watch)
        self._pooling = self.vllm_config.model_config.runner_type == "pooling"
        self._scrub_blocks = scrub_blocks
        self._steps_in_flight = 0
        self._counted = time.monotonic()

    # Configs and timeouts, from the housekeeping thread

    def apply_config(self, config: RuntimeConfig) -> dict[str, int]:
        """Enforce a new config from now on. Requests in flight continue.

        Returns:
            Number of reserved blocks, by zone, that exceed the capacity of this engine.

        Raises:
            ConfigError: the config can't be enforced on this engine, which keeps enforcing the previous config.
        """
        check_scrub(config, self.kv_cache_config, prepared=self._scrub_blocks)
        check_latency(config, chunked=self.scheduler_config.enable_chunked_prefill)
        return self._beside_steps.apply_config(config)

    def evict_cache(self) -> int:
        """Evict all cached blocks of all zones. Returns the number of evicted blocks."""
        return self._beside_steps.evict_cache()

    def let_time_pass(self) -> None:
        """Apply timeouts to zones and loans. Called several times a second, even if no step runs."""
        self._beside_steps.let_time_pass()

    def publish_events(self) -> None:
        """Publish the KV events of work done outside the steps, because an idle engine runs no step to publish them.

        Does nothing while a step is in flight, because the events may report blocks as stored that the step has not
        computed yet. That step publishes the events at its end.
        """
        if not self._steps_in_flight and (events := self.kv_cache_manager.take_events()):
            self.kv_event_publisher.publish(KVEventBatch(ts=time.time(), events=events))

    # Requests arrive

    def add_request(self, request: Request) -> None:
        with self.zone_lock:
            if request.request_id not in self.requests:
                self._bind(request)
            super().add_request(request)

    def _bind(self, request: Request) -> None:
        """Bind a request to its zone, or refuse it."""
        now = time.monotonic()
        note_arrival(request, now)
        had_zones = bool(self._zones)
        try:
            zone = self._binder.bind(request, now)
            self._masks.check(request, zone)
        except BindingError as error:
            self.refuse(request, error)
            return
        finally:
            if not had_zones:
                self._early.adopt()
        request.zone = zone
        self.tiers.bind(request, zone)
        if zone is not None:
            self.tenancy.request_arrived(zone, now)
            enter_queue(request, zone, now)
            self._media.arrived(request, zone)

    def refuse(self, request: Request, error: BindingError) -> None:
        """Count a request as refused, and have the next output report the reason to its client.

        Does nothing if the request has ended since the reason arose, for example because its client has aborted it.
        """
        if request.is_finished():
            return
        logger.debug("request %s is refused: %s", request.request_id, error, extra={"tenant": error.tenant})
        # A request that has a zone is counted when it ends, like any other.
        self.tenancy.refused(error.tenant, error.reason, is_ended=zone_of(request) is None)
        self.failed_reqs[request.request_id] = request
        state_of(request).refusal = error
        cancel_compilation(request)

    def is_refused(self, request: Request) -> bool:
        """Returns whether the next output will end a request with an error, usually because it was refused."""
        return request.request_id in self.failed_reqs

    # Steps

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        with self.zone_lock:
            self.tenancy.ledger.now = now = time.monotonic()
            self._steps_in_flight += 1
            for request in self.waiting.put_back_arrived():
                self._refuse_grammar(request)
                self.end_with_error(request)
            if not self._zones:
                return super().schedule(throttle_prefills)
            if now - self._counted >= COUNT_SECONDS:
                self._count_generated(now)
            self._guard.check_a_table(self.running)
            self._early.send_back_loads()
            # vLLM repeats this call later, but the arbiter already needs the states that the previous step computed.
            self.kv_cache_manager.new_step_starts()
            self._arbiter.begin_step()
            try:
                output = super().schedule(throttle_prefills)
            finally:
                refused = self.kv_cache_manager.take_refused()
                if refused is not None:
                    self._arbiter.turned_down(refused)
                self._guard.fail_condemned()
                self._arbiter.end_step()
            self._processed.scheduled(output)
            self._watch.scheduled(output, now)
            return output

    def num_tokens_to_encode(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        # Media after the request's share of the step are not encoded yet, because other requests need the encoder.
        if self._zones:
            num_new_tokens = self._images.up_to_first(request, num_computed_tokens, num_new_tokens)
        if num_new_tokens and self._arbiter.shares_tokens:
            num_new_tokens = self._part_of_step(self._arbiter.share_of, request, num_computed_tokens, num_new_tokens)
        return num_new_tokens

    def num_tokens_to_schedule(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        # 0 makes vLLM skip a running request. If vLLM itself found no blocks for the request, it would preempt the
        # newest request, or schedule none of the later requests.
        if request.status is _RUNNING and not request.is_prefill_chunk and num_new_tokens > 0 and self._zones:
            # Fast path, because most running requests generate, and vLLM's method only affects prompts.
            tokens = self._arbiter.tokens_to_generate(request, num_new_tokens)
            return self._if_it_has_blocks(request, tokens)
        if self._arbiter.shares_tokens:
            num_new_tokens = self._part_of_step(self._arbiter.tokens_for, request, num_computed_tokens, num_new_tokens)
        tokens = int(super().num_tokens_to_schedule(request, num_computed_tokens, num_new_tokens))
        if not self._zones:
            return tokens
        if not tokens and self.need_mamba_block_aligned_split:
            # The chunk must end where a state is cached. But vLLM's rule for draft models allows no chunk to end this
            # close to the prompt's end, so vLLM would skip the request forever. Ignoring that rule here only makes
            # drafts less accurate.
            tokens = num_new_tokens
        return self._if_it_has_blocks(request, tokens) if request.status is _RUNNING else tokens

    def _if_it_has_blocks(self, request: Request, tokens: int) -> int:
        """Returns ``tokens`` if a running request has or may take the blocks for them, else 0."""
        if not tokens or self.kv_cache_manager.has_slots_for(request, tokens):
            return tokens
        self.kv_cache_manager.let_go_of_skipped(request)
        return tokens if self._arbiter.may_continue(request, self._demand.of_running(request, tokens)) else 0

    def _part_of_step(
        self, share: Callable[..., int], request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        if request.status is not _RUNNING and (known := request.num_tokens - num_computed_tokens) < num_new_tokens:
            # After a request's last known token, vLLM also schedules drafts, whose number must not be reduced.
            return num_new_tokens if share(request, known) == known else 0
        if not self.need_mamba_block_aligned_split and not self._images.has_some(request):
            return share(request, num_new_tokens)

        def fitting(tokens: int) -> int:
            # vLLM has aligned the end of the whole chunk to a cached state. A shorter chunk must also be aligned.
            if self.need_mamba_block_aligned_split:
                found = num_computed_tokens - request.num_computed_tokens
                return int(self._mamba_block_aligned_split(request, tokens, found))
            fits = self._images.up_to_first(request, num_computed_tokens, tokens)
            if not fits and tokens and request.status is not _RUNNING:
                # The cached prefix ends at an image. If the request got no tokens, vLLM would admit no other.
                return min(num_new_tokens, self._images.through_first(request, num_computed_tokens))
            return fits

        return share(request, num_new_tokens, fitting)

    @property
    def _processed(self) -> ProcessedTokens:
        processed: ProcessedTokens = self.kv_cache_manager.processed
        return processed

    def on_preempt(self, request: Request) -> None:
        self._processed.stay_ends(request)
        self.tiers.preempted(request)

    def select_victim(self, request: Request, victim: Request | None) -> Request | None:
        # The arbiter preempts requests for zones before a step, never during a step.
        return victim if self.kv_cache_manager.refused is None else None

    def may_admit(self, request: Request) -> bool:
        self._arbiter.admit(request)
        # vLLM only counts the adapters of this step's requests. But requests that vLLM has skipped and loading requests
        # need their adapters, too. Without this check, a later step may need more adapters than fit, and vLLM crashes.
        return not self._zones or (self._may_have_slot(request) and self._engine.has_adapter_room(request))

    def _may_have_slot(self, request: Request) -> bool:
        # A request that loads its tier hits already has its adapter's slot, and keeps it.
        return request in self._engine.loading or self._arbiter.may_have_slot(request)

    def _has_landed(self, request: Request) -> bool:
        """Returns whether a request's load from a tier has ended."""
        return request.status != _LOADING or request.request_id in self.finished_recving_kv_req_ids

    def _count_generated(self, now: float) -> None:
        """Charge zones for their running requests' generated tokens. Not called in each step, to save time."""
        self._counted = now
        for request in self.running:
            zone = zone_of(request)
            if zone is not None:
                count_generated(request, zone)
                self._processed.count(request)

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        output: GrammarOutput | None = super().get_grammar_bitmask(scheduler_output)
        for request, error in self._masks.take_ended():
            with self.zone_lock:
                if error is not None:
                    self.refuse(request, error)
                self.end_with_error(request)
        return output

    def _refuse_what_does_not_compile(self) -> None:
        """Refuse requests whose grammars do not compile, before vLLM ends them without a reason for the client."""
        for name in self.grammar_compile_error_reqs:
            request = self.requests.get(name)
            if request is not None and name not in self.failed_reqs:
                self._refuse_grammar(request)

    def _refuse_grammar(self, request: Request) -> None:
        zone = zone_of(request)
        if zone is not None:
            self.refuse(request, BindingError("unsupported", zone.spec.tenant, NOT_COMPILED))

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        with self.zone_lock:
            self._refuse_what_does_not_compile()
            self._processed.step_ends(scheduler_output)
            refusals = {id: error for id, request in self.failed_reqs.items() if (error := state_of(request).refusal)}
            outputs: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
            if refusals or self._pooling:
                mark(outputs.values(), refusals, pooling=self._pooling)
            self._steps_in_flight -= 1
            first_tokens = self.kv_cache_manager.latencies.after_output()
            self._watch.completed(scheduler_output, first_tokens, time.monotonic())
            return outputs

    def on_drafts_verified(self, request: Request, num_rejected: int) -> None:
        self._processed.drafts_verified(request, num_rejected)

    def block_ids_to_zero(self, block_ids: list[int] | None) -> list[int] | None:
        scrubbed = self.tenancy.ledger.take_blocks_to_scrub()
        if not model_needs_zeroing(self.kv_cache_config):
            return scrubbed or None
        return [*(block_ids or ()), *scrubbed] or None

    # Requests end

    def end_with_error(self, request: Request) -> None:
        """Remove a waiting or running request from the queues, and end it with an error in the next output.

        Does nothing if the request has already ended.
        """
        if request.is_finished():
            return
        self.waiting.remove_requests([request])
        self.kv_holding_waiting.remove_requests([request])
        self.deferred_waiting.discard(request)
        if request.status is RequestStatus.WAITING_FOR_STREAMING_REQ:
            # vLLM leaves these requests out of the unfinished ones, and an engine without unfinished requests sleeps.
            request.status = RequestStatus.WAITING
            self.num_waiting_for_streaming_input -= 1
        self.failed_reqs[request.request_id] = request

    def _fail_unsatisfiable(self, request: Request, error: str) -> None:
        """End a waiting request with an error, because it can never get the blocks that it needs."""
        zone = zone_of(request)
        self.refuse(request, BindingError("too_long", None if zone is None else zone.name_in_journal, error))
        self.end_with_error(request)

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[Request]:
        with self.zone_lock:
            finished: list[Request] = super().finish_requests(request_ids, finished_status)
            return finished

    def on_finish(self, request: Request) -> None:
        self._processed.stay_ends(request)
        cancel_compilation(request)

    def on_blocks_freed(self, request: Request) -> None:
        zone = zone_of(request)
        if zone is not None:
            now = time.monotonic()
            count_generated(request, zone)
            leave_queue(request, zone, now, is_served=False)
            self._media.ended(request, zone)
            zone.counters.request_ended(outcome_of(request))
            self.tenancy.request_finished(zone, now)

    # The engine core

    def on_engine_ready(self, wake: Callable[[], None], is_running: Callable[[], bool]) -> None:
        """Called once, before the first step."""
        connect_migration(self, wake, is_running)

    def on_lora_added(self, lora_request: LoRARequest) -> None:
        """Called before the workers load an adapter."""
        ADAPTERS.read(lora_request)

    # Pauses and resets

    def set_pause_state(self, pause_state: PauseState) -> None:
        with self.zone_lock:
            super().set_pause_state(pause_state)
            # Set the time here, because the next step may come much later.
            self.tenancy.ledger.now = time.monotonic()
            self._arbiter.pause()
            self.waiting.note_preparations()

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        with self.zone_lock:
            running = list(self.running)
            try:
                return bool(super().reset_prefix_cache(reset_running_requests, reset_connector))
            finally:
                for request in running if self._zones else ():
                    if request.status == RequestStatus.PREEMPTED:
                        self._arbiter.note_preemption(request, "reset", None)

    def reset_encoder_cache(self) -> None:
        with self.zone_lock:
            super().reset_encoder_cache()

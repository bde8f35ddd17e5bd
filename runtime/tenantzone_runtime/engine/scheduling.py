"""vLLM's async scheduler, aware of zones.

``schedule()`` itself stays vLLM's. What makes it zone-aware stands around it: requests are bound when they arrive, the
waiting queue yields only what may be admitted, free blocks are counted by zone, and a pass before each step makes room
where a zone is entitled to it, so that vLLM's own preemption (of whoever came last, whoever it belongs to) is not
needed for it.
"""

import logging
import time
from collections.abc import Iterable
from threading import RLock
from typing import Any

from vllm.distributed.kv_events import KVEventBatch
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from tenantzone_contract.config import RuntimeConfig
from tenantzone_runtime.engine.binding import Binder, BindingError
from tenantzone_runtime.engine.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.demand import Demand
from tenantzone_runtime.engine.guard import Guard
from tenantzone_runtime.engine.kv_cache_manager import ZoneKVCacheManager
from tenantzone_runtime.engine.latencies import note_arrival
from tenantzone_runtime.engine.request_queue import ZoneRequestQueue
from tenantzone_runtime.engine.requests import count_generated, outcome_of, zone_of
from tenantzone_runtime.engine.room import RoomMaker
from tenantzone_runtime.engine.scrubbing import check_scrub, model_needs_zeroing
from tenantzone_runtime.engine.versions import check_supported, check_version, zone_classes
from tenantzone_runtime.zones import preemption
from tenantzone_runtime.zones.audit import Event
from tenantzone_runtime.zones.zone import Zone

logger = logging.getLogger(__name__)

COUNT_SECONDS = 0.5
"""Between two counts of what running requests have generated; what one has when it ends is counted at once."""


class ZoneAwareScheduler(AsyncScheduler):
    """An async scheduler whose blocks, queue and preemption are by zone.

    Every public method that vLLM calls takes ``zone_lock``, which is free between two of them: that is when a
    housekeeper on another thread may change zones. Nobody else contends for it.

    Args:
        seal_key: shared with the front door.
        scrub_blocks: whether the workers were prepared to zero blocks.
        args, kwargs: vLLM's own.
    """

    kv_cache_manager: ZoneKVCacheManager

    def __init__(self, *args: Any, seal_key: bytes = b"", scrub_blocks: bool = False, **kwargs: Any) -> None:
        check_version()
        with zone_classes():
            super().__init__(*args, **kwargs)
        check_supported(self.vllm_config, self.kv_cache_config)
        self.zone_lock = RLock()
        self.block_pool: ZoneBlockPool = self.kv_cache_manager.block_pool
        self.tenancy = self.block_pool.tenancy
        self.kv_cache_manager.admits_whole_prompts = self.scheduler_reserve_full_isl
        self.waiting = ZoneRequestQueue(self.policy, self._is_admissible)
        self._demand = Demand(self)
        self._binder = Binder(seal_key, self.tenancy)
        self._room = RoomMaker(self, self._demand)
        self._guard = Guard(self, self._room)
        self._scrub_blocks = scrub_blocks
        self._scheduling = False
        self._steps_in_flight = 0
        self._counted = time.monotonic()

    def apply_config(self, config: RuntimeConfig) -> None:
        """Enforce a new config from now on; requests in flight stay.

        Raises:
            ConfigError: it can't be held on this engine; what was enforced before still is.
        """
        check_scrub(config, prepared=self._scrub_blocks)
        plan = self.tenancy.plan(config)
        with self.zone_lock:
            for zone, evicted in self.tenancy.enforce(config, plan, time.monotonic()):
                self.block_pool.return_evicted(zone, evicted)
            self._give_grace()

    def _give_grace(self) -> None:
        """Let requests in flight finish that need more than a limit which was lowered under them."""
        for zone in self.tenancy.ledger.zones.values():
            zone.grace = 0
        for request in self.requests.values():
            owner = zone_of(request)
            if owner is not None and (most := self._demand.at_most(request)) > owner.spec.quota.limit:
                owner.grace = max(owner.grace, most)

    def let_time_pass(self) -> None:
        """What time alone does to zones and loans; to be called several times a second, whether steps run or not."""
        with self.zone_lock:
            free = self.block_pool.free_block_queue.num_free_blocks
            self.block_pool.return_all_evicted(self.tenancy.upkeep(time.monotonic(), free))
            self._publish_events()

    def _publish_events(self) -> None:
        """Publish the KV events of what goes on beside the steps: while the engine is idle, no step comes to do it.

        One that is in flight does it in the end. It has noted blocks as stored that are not computed yet.
        """
        if not self._steps_in_flight and (events := self.kv_cache_manager.take_events()):
            self.kv_event_publisher.publish(KVEventBatch(ts=time.time(), events=events))

    def collect_audit(self, *, with_usage: bool) -> list[Event]:
        """What has happened to zones since the last call, and if asked for, what each has used up to now."""
        with self.zone_lock:
            events = self.tenancy.ledger.trail.collect()
            return events + self.tenancy.usage() if with_usage else events

    def add_request(self, request: Request) -> None:
        with self.zone_lock:
            if request.request_id not in self.requests:
                self._bind(request)
            super().add_request(request)

    def _bind(self, request: Request) -> None:
        """Give the request its zone, or mark it to be finished with an error."""
        now = time.monotonic()
        note_arrival(request, now)
        try:
            zone = self._binder.bind(request, now)
            if zone is not None:
                self._fit_to_limit(request, zone)
        except BindingError as error:
            logger.warning("request %s is refused: %s", request.request_id, error, extra={"tenant": error.tenant})
            self._refuse(request, error)
            return
        request.zone = zone
        if zone is not None:
            self.tenancy.request_arrived(zone, now)

    def _refuse(self, request: Request, error: BindingError) -> None:
        self.tenancy.refused(error.tenant, error.reason)
        self.end_with_error(request)

    def end_with_error(self, request: Request) -> None:
        """Finish a request that is waiting or not yet added with an error, in the next ``update_from_output``."""
        # The way that vLLM takes for a grammar that fails to compile: the request is never scheduled, and the next
        # update_from_output finishes it with an error.
        request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        self.grammar_compile_error_reqs.add(request.request_id)

    def _fit_to_limit(self, request: Request, zone: Zone) -> None:
        """A zone's limit bounds the length of its requests, as the model's maximum length does for all.

        Raises:
            BindingError: not even the prompt and one more token fit.
        """
        room = zone.spec.quota.limit * self.block_size - request.num_prompt_tokens
        if room < 1:
            raise BindingError(
                "too_long",
                zone.spec.tenant,
                f"the prompt of {request.num_prompt_tokens} tokens does not fit into the limit of zone "
                f"{zone.spec.tenant}: {zone.spec.quota.limit} blocks of {self.block_size} tokens",
            )
        request.max_tokens = min(request.max_tokens, room)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        with self.zone_lock:
            self.tenancy.ledger.now = now = time.monotonic()
            if self.tenancy.ledger.zones:
                if now - self._counted >= COUNT_SECONDS:
                    self._count_generated(now)
                self._guard.check_a_table()
                self._room.make()
            self._scheduling = True
            self._steps_in_flight += 1
            try:
                return super().schedule(throttle_prefills)
            finally:
                self._scheduling = False
                self._guard.fail_condemned()
                self._room.remember(self.kv_cache_manager.take_refused())
                self.waiting.end_step()
                self.tenancy.end_step()

    def _count_generated(self, now: float) -> None:
        """Charge zones for what their running requests have generated: from time to time, not with each token."""
        self._counted = now
        for request in self.running:
            zone = zone_of(request)
            if zone is not None:
                count_generated(request, zone)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        with self.zone_lock:
            outputs: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
            self._steps_in_flight -= 1
            self.kv_cache_manager.latencies.after_output()
            return outputs

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[Request]:
        with self.zone_lock:
            finished: list[Request] = super().finish_requests(request_ids, finished_status)
            return finished

    def set_pause_state(self, pause_state: PauseState) -> None:
        with self.zone_lock:
            super().set_pause_state(pause_state)
            # No step may come for long, and while the engine is paused it is not for blocks that requests wait.
            self.tenancy.ledger.now = time.monotonic()
            self.tenancy.end_step()

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        with self.zone_lock:
            return bool(super().reset_prefix_cache(reset_running_requests, reset_connector))

    def _get_new_block_ids_to_zero(self) -> list[int] | None:
        new: list[int] | None = super()._get_new_block_ids_to_zero()
        scrubbed = self.tenancy.ledger.take_blocks_to_scrub()
        if not model_needs_zeroing(self.kv_cache_config):
            return scrubbed or None
        return [*(new or ()), *scrubbed] or None

    def _free_blocks(self, request: Request) -> None:
        super()._free_blocks(request)
        zone = zone_of(request)
        if zone is not None:
            count_generated(request, zone)
            zone.counters.request_ended(outcome_of(request))
            self.tenancy.request_finished(zone, time.monotonic())
            if zone.grace:
                self._give_grace()

    def _is_admissible(self, request: Request) -> bool:
        """Whether vLLM gets the blocks that it asks for when it admits the request now."""
        zone = zone_of(request)
        if zone is None:
            return True
        denied = self.denied_blocks(request, zone)
        if denied and not self._room.relieve(zone, denied):
            self.tenancy.must_wait(zone, denied, self.block_pool.free_block_queue.num_free_blocks)
            return False
        self.tenancy.may_go_on(zone)
        return True

    def denied_blocks(self, request: Request, zone: Zone) -> int:
        """Blocks that vLLM would ask for to admit the request now, if it would not get them; else 0."""
        if self._is_blocked_waiting_status(request.status):
            return 0
        available = self.block_pool.available_to(zone)
        # Without a prefix hit it would need the most: if that fits there is no need to look one up.
        if self._demand.to_admit_without_hits(request) <= available:
            return 0
        count = self._demand.to_admit(request)
        return count if count > available else 0

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super()._preempt_request(request, *args, **kwargs)
        if self.tenancy.ledger.zones:
            self._room.note_preemption(request)

    def _request_blocks_can_be_freed(self, request: Request) -> bool:
        """Whether vLLM may preempt this running request for the one that was just refused blocks.

        It asks while it schedules the running requests, and stops there if not; before the next step it is chosen who
        yields.
        """
        refused = self.kv_cache_manager.refused
        if refused is not None and self.kv_cache_manager.is_condemned(refused):
            return False
        if self._scheduling and refused is not None and request.status == RequestStatus.RUNNING:
            victim, beneficiary = zone_of(request), zone_of(refused)
            if not preemption.may_yield(victim, beneficiary, self._demand.to_continue(refused)):
                return False
        return bool(super()._request_blocks_can_be_freed(request))

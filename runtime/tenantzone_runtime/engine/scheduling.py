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

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from tenantzone_contract.config import RuntimeConfig
from tenantzone_runtime.engine.binding import Binder, BindingError
from tenantzone_runtime.engine.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.demand import Demand
from tenantzone_runtime.engine.kv_cache_manager import ZoneKVCacheManager, zone_of
from tenantzone_runtime.engine.request_queue import ZoneRequestQueue
from tenantzone_runtime.engine.versions import check_supported, check_version, zone_classes
from tenantzone_runtime.zones import configure, preemption, states
from tenantzone_runtime.zones.zone import Zone

logger = logging.getLogger(__name__)


class ZoneAwareScheduler(AsyncScheduler):
    """An async scheduler whose blocks, queue and preemption are by zone.

    Every public method that vLLM calls takes ``zone_lock``, which is free between two of them: that is when a
    housekeeper on another thread may change zones. Nobody else contends for it.

    Args:
        seal_key: shared with the front door.
        args, kwargs: vLLM's own.
    """

    kv_cache_manager: ZoneKVCacheManager

    def __init__(self, *args: Any, seal_key: bytes = b"", **kwargs: Any) -> None:
        check_version()
        with zone_classes():
            super().__init__(*args, **kwargs)
        check_supported(self.vllm_config, self.kv_cache_config)
        self.zone_lock = RLock()
        self.block_pool: ZoneBlockPool = self.kv_cache_manager.block_pool
        self.waiting = ZoneRequestQueue(self.policy, self._is_admissible)
        self._demand = Demand(self)
        self._binder = Binder(seal_key, self.block_pool.ledger)
        self._starved: Request | None = None
        self._scheduling = False

    def apply_config(self, config: RuntimeConfig) -> None:
        """Enforce a new config from now on; requests in flight stay.

        Raises:
            ConfigError: it can't be held on this engine; what was enforced before still is.
        """
        with self.zone_lock:
            specs = configure.zone_specs(config, self.block_pool.capacity)
            for zone, block_ids in configure.apply(self.block_pool.ledger, specs, time.monotonic()):
                self.block_pool.return_evicted(zone, block_ids)
            for zone in self.block_pool.ledger.zones.values():
                self._give_grace(zone)

    def _give_grace(self, zone: Zone) -> None:
        """Let requests in flight finish that need more than a limit which was lowered under them."""
        needs = (self._demand.at_most(request) for request in self.requests.values() if zone_of(request) is zone)
        most = max(needs, default=0)
        zone.grace = most if most > zone.spec.quota.limit else 0

    def let_time_pass(self) -> None:
        """Let idle zones become quiet, or give up their blocks."""
        with self.zone_lock:
            now = time.monotonic()
            for zone in list(self.block_pool.ledger.zones.values()):
                block_ids = states.advance(self.block_pool.ledger, zone, now)
                if block_ids:
                    self.block_pool.return_evicted(zone, block_ids)

    def add_request(self, request: Request) -> None:
        with self.zone_lock:
            if request.request_id not in self.requests:
                self._bind(request)
            super().add_request(request)

    def _bind(self, request: Request) -> None:
        """Give the request its zone, or mark it to be finished with an error."""
        try:
            zone = self._binder.bind(request)
            if zone is not None:
                self._fit_to_limit(request, zone)
        except BindingError as error:
            logger.warning("request %s is refused: %s", request.request_id, error)
            self._refuse(request)
            return
        request.zone = zone
        if zone is not None:
            states.request_arrived(self.block_pool.ledger, zone, time.monotonic())

    def _refuse(self, request: Request) -> None:
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
                f"the prompt of {request.num_prompt_tokens} tokens does not fit into the limit of zone "
                f"{zone.spec.tenant}: {zone.spec.quota.limit} blocks of {self.block_size} tokens"
            )
        request.max_tokens = min(request.max_tokens, room)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        with self.zone_lock:
            if self.block_pool.ledger.zones:
                self._make_room()
            self._scheduling = True
            try:
                return super().schedule(throttle_prefills)
            finally:
                self._scheduling = False
                self._remember_refused()

    def _remember_refused(self) -> None:
        """A running request that was refused blocks is helped before the next step; a waiting one's zone goes last."""
        refused, self.kv_cache_manager.refused = self.kv_cache_manager.refused, None
        if refused is None:
            return
        if refused.status == RequestStatus.RUNNING:
            self._starved = refused
        else:
            self.waiting.end_turn(zone_of(refused))

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        with self.zone_lock:
            outputs: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
            return outputs

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[Request]:
        with self.zone_lock:
            finished: list[Request] = super().finish_requests(request_ids, finished_status)
            return finished

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        with self.zone_lock:
            return bool(super().reset_prefix_cache(reset_running_requests, reset_connector))

    def _free_blocks(self, request: Request) -> None:
        super()._free_blocks(request)
        zone = zone_of(request)
        if zone is not None:
            zone.counters.prompt_tokens += request.num_prompt_tokens
            zone.counters.generation_tokens += request.num_output_tokens
            states.request_finished(zone, time.monotonic())
            if zone.grace:
                self._give_grace(zone)
            configure.discard_if_gone(self.block_pool.ledger, zone)

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        zone = zone_of(request)
        if zone is not None:
            zone.counters.preemptions += 1
        super()._preempt_request(request, *args, **kwargs)

    def _is_admissible(self, request: Request) -> bool:
        """Whether vLLM would get the blocks that it asks for when it admits the request now."""
        zone = zone_of(request)
        return zone is None or self._denied_blocks(request, zone) == 0

    def _denied_blocks(self, request: Request, zone: Zone) -> int:
        """Blocks that vLLM would ask for to admit the request now, if it would not get them; else 0."""
        if self._is_blocked_waiting_status(request.status):
            return 0
        available = self.block_pool.available_to(zone)
        # Without a prefix hit it would need the most: if that fits there is no need to look one up.
        if self._demand.to_admit_without_hits(request) <= available:
            return 0
        count = self._demand.to_admit(request)
        return count if count > available else 0

    def _make_room(self) -> None:
        """Before a step: what a zone is entitled to and others' requests stand on is freed by preempting those."""
        self.waiting.new_step()
        starved, self._starved = self._starved, None
        if starved is not None and starved.status == RequestStatus.RUNNING and (zone := zone_of(starved)) is not None:
            count = self._demand.to_continue(starved)
            self._recall(starved, zone, count)
            if starved.status == RequestStatus.RUNNING and self.block_pool.available_to(zone) < count:
                # vLLM stops at a running request that gets no blocks: those behind it must not wait for it.
                self._preempt_before_step(starved)
        for request in self.waiting.fronts():
            zone = zone_of(request)
            if zone is None:
                continue
            count = self._denied_blocks(request, zone)
            if count > 0 and preemption.is_entitled(zone, count):
                self._recall(request, zone, count)

    def _recall(self, request: Request, zone: Zone, count: int) -> None:
        """Preempt running requests until the request's zone may take ``count`` blocks, or nobody may yield."""
        while self.block_pool.available_to(zone) < count:
            # Requests from before the first zone have none, and yield to nobody.
            running = [(runner, owner) for runner in self.running if (owner := zone_of(runner)) is not None]
            index = preemption.choose_victim([owner for _, owner in running], zone, count)
            if index is None:
                return
            victim, _ = running[index]
            self._preempt_before_step(victim)
            if victim is request:
                return

    def _preempt_before_step(self, victim: Request) -> None:
        self.running.remove(victim)
        self._preempt_request(victim, time.monotonic())
        # The worker still has it in its batch of the last step: it may not come back within this one.
        self.waiting.set_aside(zone_of(victim))

    def _request_blocks_can_be_freed(self, request: Request) -> bool:
        """Whether vLLM may preempt this running request for the one that was just refused blocks.

        It asks while it schedules the running requests, and stops there if not; the next step's ``_make_room`` then
        chooses who yields.
        """
        refused = self.kv_cache_manager.refused
        if self._scheduling and refused is not None and request.status == RequestStatus.RUNNING:
            victim, beneficiary = zone_of(request), zone_of(refused)
            if beneficiary is not None and (
                victim is None or not preemption.may_yield(victim, beneficiary, self._demand.to_continue(refused))
            ):
                return False
        return bool(super()._request_blocks_can_be_freed(request))

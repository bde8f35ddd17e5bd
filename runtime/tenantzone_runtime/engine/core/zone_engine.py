"""The arbiter's view of vLLM's scheduler."""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set, Sized
from itertools import chain

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.blocks.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.blocks.demand import Demand
from tenantzone_runtime.engine.blocks.encoder_cache import ZoneEncoderCacheManager
from tenantzone_runtime.engine.blocks.kv_cache_manager import ZoneKVCacheManager
from tenantzone_runtime.engine.blocks.whole_images import WholeImages
from tenantzone_runtime.engine.core.media_requests import MediaRequests
from tenantzone_runtime.engine.queues.load_queue import LoadQueue
from tenantzone_runtime.engine.queues.request_queue import ZoneRequestQueue
from tenantzone_runtime.zones.blocks.eviction import Evictions
from tenantzone_runtime.zones.engine import Encoding
from tenantzone_runtime.zones.model.zone import Zone

logger = logging.getLogger(__name__)

_RUNNING = RequestStatus.RUNNING
_WAITS_FOR_GRAMMAR = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
_WAITS_FOR_INPUT = RequestStatus.WAITING_FOR_STREAMING_REQ


class ZoneEngine:
    """Implements the arbiter's engine interface for vLLM's scheduler and its parts. It makes no decisions.

    Args:
        scheduler: the scheduler.
        queue: the waiting requests.
        pool: the block pool.
        manager: the KV cache manager.
        demand: computes the number of blocks that requests need.
        loads: the queue of requests whose loads from a tier have begun.
        media: counts requests with images, sounds or videos.
        is_looking_up: returns whether a waiting request waits for a tier to look up or load its chunks.
        fail: ends a waiting request with an error.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        queue: ZoneRequestQueue,
        pool: ZoneBlockPool,
        manager: ZoneKVCacheManager,
        demand: Demand,
        loads: LoadQueue,
        media: MediaRequests,
        is_looking_up: Callable[[Request], bool],
        fail: Callable[[Request, str], None],
    ) -> None:
        self._scheduler = scheduler
        self._loads = loads
        self._media = media
        self._images = WholeImages(scheduler)
        self._is_looking_up = is_looking_up
        self._queue = queue
        self._pool = pool
        self._manager = manager
        self._demand = demand
        self.fail = fail
        self.front: Callable[[Zone], Request] = queue.front
        self.fronts: Callable[[Zone, int], Sequence[Request]] = queue.fronts
        self.blocks_to_admit = demand.to_admit
        slots = self.tokens_each + int(scheduler.num_lookahead_tokens)
        self._blocks_each = demand.begun_by(slots)
        """Maximum number of new blocks that a generating request needs for one step."""

    @property
    def running(self) -> Sequence[Request]:
        running: list[Request] = self._scheduler.running
        return running

    def by_seniority(self) -> Sequence[Request]:
        if self._scheduler.policy != SchedulingPolicy.PRIORITY:
            return self.running
        return sorted(self.running, key=lambda request: (request.priority, request.arrival_time))

    @property
    def free_blocks(self) -> int:
        return int(self._pool.free_block_queue.num_free_blocks)

    @property
    def headroom(self) -> int:
        return self._manager.headroom

    @property
    def is_open(self) -> bool:
        return bool(self._scheduler.pause_state == PauseState.UNPAUSED)

    @property
    def goes_on(self) -> bool:
        return bool(self._scheduler.pause_state != PauseState.PAUSED_ALL)

    @property
    def seats(self) -> int:
        return int(self._scheduler.max_num_active_reqs)

    @property
    def free_seats(self) -> int:
        scheduler = self._scheduler
        seated = len(scheduler.running) + scheduler.num_waiting_for_streaming_input + len(self._loads)
        return max(0, self.seats - seated) if self.is_open else 0

    @property
    def waiting(self) -> Sized:
        return range(self._queue.ready_count)

    def needs(self) -> Iterable[tuple[Request, int]]:
        running = self._scheduler.running
        # If enough blocks are free for all requests, a request lacks blocks only if its zone has reached its limit.
        if self.free_blocks >= len(running) * self._blocks_each:
            return ()
        most, blocks_of = self._demand.max_chunk, self._manager.blocks_to_generate
        needs = [
            (request, blocks)
            for request in self._manager.may_lack_blocks(self._reached())
            if (blocks := blocks_of(request, most)) and self._comes_through(request)
        ]
        for request, _ in needs:
            # vLLM frees these blocks before it allocates others, so the arbiter need not preempt a request for them.
            self._manager.let_go_of_skipped(request)
        return needs

    def _reached(self) -> Sequence[Request]:
        """Returns the running requests that fit into the next step if prompts get as few tokens as possible."""
        running, left = self.running, int(self._scheduler.max_num_scheduled_tokens)
        if left >= len(running) * self.tokens_each:
            return running
        for index, request in enumerate(running):
            if left <= 0:
                return running[:index]
            if self._comes_through(request):
                left -= self._manager.tokens_to_generate(request)
        return running

    def _comes_through(self, request: Request) -> bool:
        """Returns False if vLLM will skip a request, because a pipeline stage is still computing its last token."""
        return bool(request.next_decode_eligible_step <= self._scheduler.current_step + 1)

    @property
    def loading(self) -> Collection[Request]:
        return list(self._loads)

    @property
    def landing(self) -> Collection[Request]:
        return self._loads.landing

    @property
    def adapter_slots(self) -> int:
        config = self._scheduler.lora_config
        return 0 if config is None else int(config.max_loras)

    def adapter(self, request: Request) -> int | None:
        # An engine without adapters uses the base model for a request that names an adapter, as stock vLLM does.
        is_without = request.lora_request is None or self._scheduler.lora_config is None
        return None if is_without else int(request.lora_request.lora_int_id)

    @property
    def coming(self) -> Mapping[Zone, int]:
        deferred = [block for _, blocks in self._scheduler.deferred_frees for block in blocks]
        if not deferred:
            return {}
        # A block that several requests use becomes free when the last user releases it.
        let_go, owner = Counter(block.block_id for block in deferred), self._pool.ledger.owner
        free = {block.block_id for block in deferred if block.ref_cnt == let_go[block.block_id]}
        return Counter(zone for block_id in free if (zone := owner[block_id]) is not None)

    def is_running(self, request: Request) -> bool:
        return request.status is _RUNNING

    def blocks_at_most(self, request: Request) -> int:
        return 0 if self._waits_for_something_else(request) else self._demand.at_most(request)

    def can_begin(self, request: Request) -> bool:
        return self.can_encode(request) and not self._manager.begins_with_this_step(request)

    def can_go_on(self, request: Request) -> bool:
        if not request.mm_features:
            return True
        computed_tokens = int(request.num_computed_tokens)
        return self._has_room(request, computed_tokens, self._last_needed(computed_tokens))

    def _last_reached(self, computed_tokens: int) -> int:
        """Returns the position of the last token that a step can reach in a prompt after ``computed_tokens``."""
        return self._last_needed(computed_tokens) + int(self._scheduler.max_num_scheduled_tokens) - 1

    def _last_needed(self, computed_tokens: int) -> int:
        """Returns the last position whose encoding the next token needs. Draft models read beyond the next token."""
        return computed_tokens + int(self._scheduler.num_prefill_lookahead)

    def _has_room(self, request: Request, computed_tokens: int, last: int) -> bool:
        """Returns whether the encoder has room for a request's next media item, if any, up to token ``last``."""
        encodings, budget = self._scheduler.encoder_cache_manager, self._scheduler.max_num_encoder_input_tokens
        if not isinstance(encodings, ZoneEncoderCacheManager):
            return True
        return encodings.has_room_for(request, computed_tokens, int(budget), last)

    def can_encode(self, request: Request) -> bool:
        if not request.mm_features:
            return True
        computed_tokens = self._computed(request)
        return self._has_room(request, computed_tokens, self._last_reached(computed_tokens))

    def _computed(self, request: Request) -> int:
        """Returns how many tokens of a waiting request are computed. If none are, returns how many are cached."""
        return int(request.num_computed_tokens or self._manager.look_up(request)[1])

    @property
    def media_zones(self) -> Collection[Zone]:
        return self._media.zones

    @property
    def encoder_room(self) -> Encoding:
        scheduler = self._scheduler
        return Encoding(
            int(scheduler.encoder_cache_manager.num_freeable_slots), int(scheduler.max_num_encoder_input_tokens)
        )

    def next_encoding(self, request: Request) -> Encoding | None:
        encodings, budget = self._scheduler.encoder_cache_manager, int(self._scheduler.max_num_encoder_input_tokens)
        if not request.mm_features or not isinstance(encodings, ZoneEncoderCacheManager):
            return None
        if self.is_running(request):
            if not self.is_in_prompt(request):
                return None
            computed_tokens = int(request.num_computed_tokens)
            needed = encodings.next_of(request, computed_tokens, self._last_needed(computed_tokens))
        elif request in self._loads and not self._loads.has_landed(request):
            return None
        else:
            computed_tokens = self._computed(request)
            needed = encodings.next_of(request, computed_tokens, self._last_reached(computed_tokens))
        return needed if needed is not None and encodings.could_ever_take(needed, budget) else None

    def encodings_in_use(self) -> Iterable[tuple[int, Set[Request]]]:
        requests = self._scheduler.requests
        for embeddings, users in self._scheduler.encoder_cache_manager.in_use():
            yield embeddings, {requests[name] for name in users}

    def blocks_to_continue(self, request: Request) -> int:
        self._manager.let_go_of_skipped(request)
        return self._demand.to_continue(request)

    @property
    def step_tokens(self) -> int | None:
        scheduler, config = self._scheduler, self._scheduler.scheduler_config
        if not config.enable_chunked_prefill:
            return None
        drafting = scheduler.vllm_config.speculative_config
        # For each request, a draft model may compute more tokens than the step schedules.
        slots = 0 if drafting is None else int(drafting.max_num_new_slots_for_drafting) * len(scheduler.running)
        return min(int(scheduler.max_num_scheduled_tokens), max(0, int(config.max_num_batched_tokens) - slots))

    def chunk_tokens(self, request: Request) -> int:
        if self._images.has_some(request):
            return self._images.through_first(request, request.num_computed_tokens)
        return self._block_tokens

    @property
    def _block_tokens(self) -> int:
        """Interval in tokens at which a step may end within a prompt, to cache states. 1 if it may end anywhere."""
        scheduler, config = self._scheduler, self._scheduler.scheduler_config
        most = min(int(scheduler.max_num_scheduled_tokens), config.long_prefill_token_threshold or sys.maxsize)
        block_tokens = int(scheduler.cache_config.block_size)
        # A block that is too large for one step is filled by several steps, which may end anywhere.
        return block_tokens if scheduler.need_mamba_block_aligned_split and block_tokens <= most else 1

    @property
    def tokens_each(self) -> int:
        return 1 + int(self._scheduler.num_spec_tokens)

    @property
    def depth(self) -> int:
        return int(self._scheduler.vllm_config.max_concurrent_batches)

    def in_prompts(self) -> Sequence[Request]:
        running = [request for request in self._scheduler.running if request.is_prefill_chunk]
        return [*running, *self._loads.landed] if self._loads else running

    def is_in_prompt(self, request: Request) -> bool:
        return bool(request.is_prefill_chunk)

    def tokens_left(self, request: Request) -> int:
        return min(int(request.num_tokens - request.num_computed_tokens), self._demand.max_chunk)

    def tokens_within(self, request: Request, blocks: int) -> int:
        return self._demand.tokens_within(request, blocks)

    def tokens_computed(self, request: Request) -> int:
        return int(request.num_computed_tokens)

    def preempt(self, request: Request) -> None:
        self._scheduler.running.remove(request)
        # Preemption releases the request's blocks. If another engine reads them to continue the request, the output in
        # flight must be dropped.
        is_delivered = self._scheduler.requires_kv_delivery
        self._scheduler._preempt_request(request, self._pool.ledger.now, drop_stale_output=is_delivered)

    def warn(self, request: Request, warning: str) -> None:
        logger.warning("request %s can't be served: %s", request.request_id, warning)

    def return_evicted(self, evictions: Evictions) -> None:
        self._pool.return_all_evicted(evictions)

    def _waits_for_something_else(self, request: Request) -> bool:
        """Returns whether vLLM will skip a request for a reason other than a lack of blocks.

        The request's status alone does not show this, because vLLM updates the status only when it next considers the
        request, which may be long after the wait has ended.
        """
        if request.status is _WAITS_FOR_GRAMMAR:
            grammar = request.structured_output_request and request.structured_output_request.grammar
            if grammar is None or isinstance(grammar, Exception):
                return True
        if request.status is _WAITS_FOR_INPUT or self._is_looking_up(request):
            return True
        return bool(request.num_stale_output_tokens and not request.drop_stale_output)

    def has_adapter_room(self, request: Request) -> bool:
        """Returns whether a waiting request's LoRA adapter fits into the slots. True for a request without an adapter.

        A loading request occupies its adapter's slot, too. Otherwise, its load might end while running requests use all
        slots, and it could then neither run nor be preempted.
        """
        return self._fits_beside(chain(self.running, self._loads), request)

    def can_land(self, request: Request) -> bool:
        """Returns whether the encoder and the adapter slots have room for a request whose load has ended."""
        return self.can_encode(request) and self._fits_beside(self.running, request)

    def _fits_beside(self, others: Iterable[Request], request: Request) -> bool:
        """Returns whether a request's LoRA adapter fits into the slots while other requests use their adapters."""
        adapter = self.adapter(request)
        if adapter is None:
            return True
        used = {self.adapter(each) for each in others} - {None}
        return adapter in used or len(used) < self.adapter_slots

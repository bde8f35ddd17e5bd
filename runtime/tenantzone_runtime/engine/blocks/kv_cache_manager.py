"""A subclass of vLLM's KV cache manager that allocates the blocks of each request for the request's zone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.blocks.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.blocks.block_tables import BlockTables
from tenantzone_runtime.engine.blocks.latencies import Latencies
from tenantzone_runtime.engine.blocks.processed_tokens import ProcessedTokens
from tenantzone_runtime.engine.blocks.requests import charge, leave_queue, note_admission, state_of, zone_of
from tenantzone_runtime.engine.errors import ForeignBlockError
from tenantzone_runtime.zones.model.fair_queue import INPUT

_RUNNING = RequestStatus.RUNNING
_LOADING = RequestStatus.WAITING_FOR_REMOTE_KVS
_allocate_slots: Callable[..., KVCacheBlocks | None] = KVCacheManager.allocate_slots


class ZoneKVCacheManager(KVCacheManager):
    """Enters the block pool's view for the request's zone around each operation of vLLM's manager."""

    block_pool: ZoneBlockPool
    enable_kv_cache_events: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._condemned: list[tuple[Request, ForeignBlockError]] = []
        self._tables = BlockTables(self.coordinator)
        self._spare: dict[str, Sequence[KVCacheBlock]] = {}
        """Blocks outside block tables, by request id. A request holds them until its load from a tier has ended."""
        self.latencies = Latencies()
        self.processed = ProcessedTokens()

    headroom = 0
    """Number of blocks that must stay free after a request is admitted while others run (vLLM's ``--watermark``)."""

    lookahead = 0
    """Number of token slots that vLLM allocates for drafted tokens, in addition to the tokens of a step."""

    drafting = 0
    """Number of token slots that a step needs to verify and to draft tokens, in addition to the next token."""

    max_step_tokens = 0
    """Maximum number of tokens that a step computes."""

    sampled = 0
    """Number of tokens that a step samples for a request. vLLM keeps a request this far below the maximum length."""

    refused: Request | None = None
    """The last request in this step that got no blocks."""

    @property
    def watermark_blocks(self) -> int:
        """Number of blocks that vLLM's checks require in addition to a request's need. 0 if zones are declared.

        With zones, vLLM's checks compare the need with the blocks that the zone may take. The headroom must not reduce
        a zone's limit or reservation, so the arbiter accounts for the headroom instead.
        """
        return 0 if self.block_pool.zones else self.headroom

    @watermark_blocks.setter
    def watermark_blocks(self, blocks: int) -> None:
        self.headroom = blocks

    def take_refused(self) -> Request | None:
        """Returns the last request that got no blocks, and clears ``refused``."""
        refused, self.refused = self.refused, None
        return refused

    def get_computed_blocks(self, request: Request, *args: Any, **kwargs: Any) -> tuple[KVCacheBlocks, int, int]:
        zone = zone_of(request)
        if zone is not None:
            note_admission(request, zone)
        return self._find(request, *args, **kwargs)

    def _find(self, request: Request, *args: Any, **kwargs: Any) -> tuple[KVCacheBlocks, int, int]:
        with self.block_pool.for_zone(zone_of(request)):
            found: tuple[KVCacheBlocks, int, int] = super().get_computed_blocks(request, *args, **kwargs)
        return found

    def look_up(self, request: Request) -> tuple[KVCacheBlocks, int, int]:
        """Look up a request's cached prefix without emitting KV events, because the request may not be admitted."""
        enabled, self.enable_kv_cache_events = self.enable_kv_cache_events, False
        try:
            return self._find(request)
        finally:
            self.enable_kv_cache_events = enabled

    def get_computed_blocks_for_connector(
        self, request: Request, *args: Any, **kwargs: Any
    ) -> tuple[KVCacheBlocks, int, int, bool]:
        computed: tuple[KVCacheBlocks, int, int, bool]
        with self.block_pool.for_zone(zone_of(request)):
            computed = super().get_computed_blocks_for_connector(request, *args, **kwargs)
        return computed

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        *args: Any,
        **kwargs: Any,
    ) -> KVCacheBlocks | None:
        if request.status is _RUNNING and new_computed_blocks is None and not args and not kwargs:
            # vLLM calls this for every request in every step. Most requests only write into a block that they hold, and
            # do not fill it. Then vLLM's method would only free blocks outside the attention window, as is done here.
            tokens = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens + num_lookahead_tokens
            if num_new_tokens and self._tables.writes_on(request, tokens):
                self.let_go_of_skipped(request)
                return self.empty_kv_cache_blocks
        pool, zone = self.block_pool, zone_of(request)
        view = pool.for_zone(zone)
        if zone is not None:
            view.growing, view.peak = request.status is _RUNNING, request.peak
            if kwargs.get("delay_cache_blocks"):
                num_lookahead_tokens = self.landing_slots(request, num_new_computed_tokens, kwargs)
                # Replaces the blocks that vLLM reserves for all prompts in progress. The arbiter reserves them by zone.
                kwargs["reserved_blocks"] = self.landing_blocks
                if new_computed_blocks is not None:
                    loaded = num_new_computed_tokens + int(kwargs.get("num_external_computed_tokens", 0))
                    new_computed_blocks = self._tables.without_skipped_states(
                        new_computed_blocks, loaded, pool.null_block
                    )
            elif request.status is not _RUNNING:
                view.spare = self._spare.pop(request.request_id, ())
                if request.num_computed_tokens:
                    # The request's load has ended, so the request already holds the blocks for its prompt.
                    kwargs["full_sequence_must_fit"] = False
        blocks: KVCacheBlocks | None = None
        try:
            with view:
                blocks = _allocate_slots(
                    self,
                    request,
                    num_new_tokens,
                    num_new_computed_tokens,
                    new_computed_blocks,
                    num_lookahead_tokens,
                    *args,
                    **kwargs,
                )
                if blocks is not None and zone is not None and self.landing_blocks and kwargs.get("delay_cache_blocks"):
                    self._spare[request.request_id] = pool.get_new_blocks(self.landing_blocks)
        except ForeignBlockError as error:
            self._condemned.append((request, error))
            blocks = None
        finally:
            if view.spare:
                self._keep_spare(request, view.spare, is_refused=blocks is None)
        if blocks is None and zone is not None:
            self.refused = request
        return blocks

    @property
    def landing_blocks(self) -> int:
        """Number of blocks for states that a request takes when its load begins, in addition to blocks for tokens.

        vLLM itself would allocate such a block only when it computes the state.
        """
        return self._tables.landing_blocks

    def _keep_spare(self, request: Request, left: Sequence[KVCacheBlock], *, is_refused: bool) -> None:
        """Keep the spare blocks that are left if the request was refused other blocks. Otherwise, free them."""
        if is_refused:
            self._spare[request.request_id] = left
        else:
            self.block_pool.free_blocks(left)

    def free(self, request: Request) -> None:
        if request.request_id in self._spare:
            self.block_pool.free_blocks(self._spare.pop(request.request_id))
        super().free(request)

    def pop_blocks_for_free(self, request: Request) -> list[KVCacheBlock]:
        blocks: list[KVCacheBlock] = super().pop_blocks_for_free(request)
        return [*blocks, *self._spare.pop(request.request_id, ())]

    def landing_slots(self, request: Request, num_new_computed_tokens: int, loading: Mapping[str, Any]) -> int:
        """Returns how many slots a request takes when its load begins, in addition to the slots of loaded tokens.

        The request must not lack blocks after the load, because a loading request can't be preempted. If some layers
        free blocks as the prompt advances, the slots suffice for the first step after the load, and the request gets
        later slots like any other running request. Otherwise, they suffice for the rest of the prompt.
        """
        loaded = num_new_computed_tokens + int(loading.get("num_external_computed_tokens", 0))
        whole = int(request.num_tokens) + self.drafting
        if self._tables.forgetful:
            whole = min(whole, loaded + self.max_step_tokens + self.drafting)
        return max(0, min(whole, self.max_model_len) - loaded)

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        # vLLM calls this for every request in every step, although it only has an effect if a block has been filled.
        if not self._tables.indexes_nothing(request, num_computed_tokens):
            with self.block_pool.for_zone(zone_of(request)):
                super().cache_blocks(request, num_computed_tokens)

    def let_go_of_skipped(self, request: Request) -> None:
        """Free a running request's blocks outside the attention window, as vLLM does before each allocation."""
        if self._tables.forgetful:
            processed = max(0, request.num_computed_tokens - request.num_in_flight_tokens)
            self._tables.let_go_of_skipped(request, processed)

    def blocks_to_allocate(
        self,
        request: Request,
        hits: tuple[Sequence[KVCacheBlock], ...],
        computed_tokens: int,
        tokens: int,
        lookahead: int,
        *,
        is_capped: bool = False,
    ) -> int:
        """Returns the number of blocks that vLLM would allocate for a request to reach a number of tokens.

        Args:
            request: a waiting or running request.
            hits: the cached blocks of the request's prefix, by KV cache group.
            computed_tokens: the number of computed tokens, including the hits.
            tokens: the number of tokens to reach.
            lookahead: the number of additional slots, for drafted tokens.
            is_capped: whether to apply vLLM's admission cap, which limits the number of blocks for layers with a
                limited attention window.
        """
        with self._tables.unchanged(request.request_id):
            blocks: int = self.coordinator.get_num_blocks_to_allocate(
                request_id=request.request_id,
                num_tokens=min(tokens + lookahead, self.max_model_len),
                new_computed_blocks=hits,
                num_encoder_tokens=0,
                total_computed_tokens=computed_tokens,
                num_local_computed_tokens=computed_tokens,
                num_tokens_main_model=tokens,
                apply_admission_cap=is_capped,
                prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
            )
        # vLLM 0.33 returns -1, and allocates no blocks, if drafts follow states that have no block.
        return max(0, blocks)

    def may_lack_blocks(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Returns the running requests for which ``blocks_to_generate`` may return more than 0."""
        return self._tables.may_lack_blocks(requests, self.lookahead)

    def blocks_to_generate(self, request: Request, max_tokens: int) -> int:
        """Returns the number of new blocks that a running request needs for its next generated token and its drafts.

        Args:
            request: a running request. The result is 0 while the request computes its prompt.
            max_tokens: the maximum number of tokens that a step computes for one request.
        """
        computed, tokens = request.num_computed_tokens, 1 + len(request.spec_token_ids)
        # Fast path, because this is called for every request before every step, and most requests need no new block.
        if self._tables.have_slots(request.request_id, computed + tokens + self.lookahead):
            return 0
        if not self._generates(request):
            return 0
        return self.blocks_to_continue(request, min(tokens, max_tokens))

    def tokens_to_generate(self, request: Request) -> int:
        """Returns how many tokens the next step computes for a generating request; 0 while it computes its prompt."""
        if not self._generates(request):
            return 0
        return max(
            0, min(1 + len(request.spec_token_ids), self.max_model_len - self.sampled - request.num_computed_tokens)
        )

    def blocks_to_continue(self, request: Request, num_new_tokens: int) -> int:
        """Returns the number of new blocks that a running request needs to compute more tokens, and drafts after them.

        vLLM does not compute drafts beyond the maximum model length.
        """
        computed, nothing = request.num_computed_tokens, self.empty_kv_cache_blocks.blocks
        tokens = min(computed + num_new_tokens, self.max_model_len - self.sampled)
        if tokens <= computed:
            return 0
        blocks = self._tables.blocks_to_grow(request.request_id, min(tokens + self.lookahead, self.max_model_len))
        if blocks is not None:
            return blocks
        return self.blocks_to_allocate(request, nothing, computed, tokens, self.lookahead)

    def _generates(self, request: Request) -> bool:
        """Returns whether a running request generates a token in its next step."""
        is_generating = request.num_computed_tokens + 1 == request.num_tokens + request.num_output_placeholders
        return is_generating and not self._generates_its_last(request)

    def _generates_its_last(self, request: Request) -> bool:
        """Returns True if the step in flight certainly ends a running request, so that vLLM skips the request."""
        in_flight = request.num_output_placeholders
        end = min(request.num_prompt_tokens + request.max_tokens, self.max_model_len)
        return bool(in_flight > 0 and request.num_computed_tokens + 2 - in_flight >= end)

    def has_slots_for(self, request: Request, num_new_tokens: int) -> bool:
        """Returns True only if a running request certainly holds enough blocks to compute this many more tokens."""
        tokens, longest = request.num_computed_tokens + num_new_tokens + self.lookahead, self.max_model_len
        return self._tables.have_slots(request.request_id, tokens if tokens < longest else longest)

    def begins_with_this_step(self, request: Request) -> bool:
        """Returns whether a waiting request starts from a state that this step computes. vLLM defers such requests."""
        return self._tables.have_states and self._tables.begin_with_this_step(self.look_up(request)[0].blocks)

    def take_condemned(self) -> list[tuple[Request, ForeignBlockError]]:
        """Returns the requests that were about to get a foreign block, each with its error, and clears the list."""
        condemned, self._condemned = self._condemned, []
        return condemned

    def forget_foreign_blocks(self, request: Request) -> None:
        """Remove blocks of other zones from a request's tables, without releasing the blocks."""
        owner, zone = self.block_pool.ledger.owner, zone_of(request)
        for caches in self.coordinator.single_type_managers:
            table = caches.req_to_blocks.get(request.request_id, [])
            table[:] = [block for block in table if block.is_null or owner[block.block_id] is zone]

    def record_prefix_cache_stats(self, request: Request, num_hits: int) -> None:
        """Count a request's prefix hits, and charge its prompt when it is admitted for the first time.

        vLLM calls this whenever a request is admitted, and when its load begins.
        """
        super().record_prefix_cache_stats(request, num_hits)
        state = state_of(request)
        state.hit_tokens = num_hits
        if not state.loaded_tokens:
            self.admitted(request)

    def admitted(self, request: Request) -> None:
        """Count and charge a request that starts to compute. A request with a load starts after the load has ended."""
        if request.status is _LOADING:
            # The request's load has failed, and vLLM starts another load.
            return
        zone, state = zone_of(request), state_of(request)
        state.loaded_tokens = 0
        self.processed.admitted(request)
        if zone is None or request.num_preemptions > 0:
            return
        now = self.block_pool.ledger.now
        self.latencies.scheduled(request, zone, now)
        leave_queue(request, zone, now, is_served=True)
        hits = state.hit_tokens
        # vLLM counts loaded tokens as computed. Fewer tokens may have been loaded than the tier reported as hits.
        loaded = max(0, request.num_computed_tokens - hits)
        computed = request.num_prompt_tokens - hits - loaded
        charge(request, zone, INPUT * computed)
        zone.counters.prompt_tokens += request.num_prompt_tokens
        zone.counters.computed_tokens += computed
        if self.prefix_cache_lookup_enabled(request) and not zone.spec.retention.no_store:
            zone.counters.prefix_query_tokens += request.num_tokens
            zone.counters.prefix_hit_tokens += hits

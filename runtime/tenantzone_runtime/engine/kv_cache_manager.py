"""vLLM's KV cache manager, which tells the block pool on whose behalf it acts."""

from collections.abc import Callable
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.zones.fair_queue import INPUT

_RUNNING = RequestStatus.RUNNING
_allocate_slots: Callable[..., KVCacheBlocks | None] = KVCacheManager.allocate_slots


class ZoneKVCacheManager(KVCacheManager):
    """Allocates each request's blocks in the name of its zone."""

    block_pool: ZoneBlockPool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # With zones there is one group of KV caches; without, these are not used.
        caches = self.coordinator.single_type_managers[0]
        self._block_tables: dict[str, list[KVCacheBlock]] = caches.req_to_blocks
        self._block_tokens = int(caches.block_size)

    refused: Request | None = None
    """The request that was refused blocks last in this step."""

    def take_refused(self) -> Request | None:
        """The request that was refused blocks last, once."""
        refused, self.refused = self.refused, None
        return refused

    def get_computed_blocks(self, request: Request) -> tuple[KVCacheBlocks, int, int]:
        with self.block_pool.acting_for(zone_of(request)):
            computed: tuple[KVCacheBlocks, int, int] = super().get_computed_blocks(request)
        return computed

    def get_computed_blocks_for_connector(self, request: Request) -> tuple[KVCacheBlocks, int, int, bool]:
        with self.block_pool.acting_for(zone_of(request)):
            computed: tuple[KVCacheBlocks, int, int, bool] = super().get_computed_blocks_for_connector(request)
        return computed

    def allocate_slots(
        self, request: Request, num_new_tokens: int, *args: Any, num_lookahead_tokens: int = 0, **kwargs: Any
    ) -> KVCacheBlocks | None:
        # Called for every request in every step. Most have room in the blocks that they hold: they ask for no quota.
        if request.status is _RUNNING:
            table = self._block_tables.get(request.request_id, ())
            tokens = request.num_computed_tokens + num_new_tokens + num_lookahead_tokens
            if tokens <= len(table) * self._block_tokens:
                return _allocate_slots(self, request, num_new_tokens, num_lookahead_tokens=num_lookahead_tokens)
        pool = self.block_pool
        pool.acting, pool.allocating = zone_of(request), True
        try:
            blocks = _allocate_slots(
                self, request, num_new_tokens, *args, num_lookahead_tokens=num_lookahead_tokens, **kwargs
            )
        finally:
            pool.acting, pool.allocating = None, False
        if blocks is None:
            self.refused = request
        return blocks

    def record_prefix_cache_stats(self, request: Request, num_hits: int) -> None:
        """Called once whenever a request is admitted. What it costs is paid with its first admission."""
        super().record_prefix_cache_stats(request, num_hits)
        zone = zone_of(request)
        if zone is None or request.num_preemptions > 0:
            return
        zone.account.charge(INPUT * (request.num_prompt_tokens - num_hits))
        zone.counters.prompt_tokens += request.num_prompt_tokens
        if self.prefix_cache_lookup_enabled(request):
            zone.counters.prefix_query_tokens += request.num_tokens
            zone.counters.prefix_hit_tokens += num_hits

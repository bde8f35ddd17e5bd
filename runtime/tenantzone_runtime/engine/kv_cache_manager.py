"""vLLM's KV cache manager, which tells the block pool on whose behalf it acts.

A request's zone is its attribute ``zone``, set by the scheduler when it was bound; a request without one came before
any zone was declared.
"""

from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.request import Request

from tenantzone_runtime.engine.block_pool import ZoneBlockPool
from tenantzone_runtime.zones.fair_queue import INPUT
from tenantzone_runtime.zones.zone import Zone


def zone_of(request: Request) -> Zone | None:
    """The zone that a request is bound to."""
    zone: Zone | None = getattr(request, "zone", None)
    return zone


class ZoneKVCacheManager(KVCacheManager):
    """Allocates each request's blocks in the name of its zone."""

    block_pool: ZoneBlockPool

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

    def allocate_slots(self, request: Request, *args: Any, **kwargs: Any) -> KVCacheBlocks | None:
        # Called for every request in every step: assignments, where a context manager would cost a microsecond.
        pool = self.block_pool
        pool.acting = zone_of(request)
        pool.allocating = True
        try:
            blocks: KVCacheBlocks | None = super().allocate_slots(request, *args, **kwargs)
        finally:
            pool.acting = None
            pool.allocating = False
        if blocks is None:
            self.refused = request
        return blocks

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        pool = self.block_pool
        pool.acting = zone_of(request)
        try:
            super().cache_blocks(request, num_computed_tokens)
        finally:
            pool.acting = None

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

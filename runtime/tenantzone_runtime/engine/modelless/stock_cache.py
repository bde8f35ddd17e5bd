"""Counts the blocks that stock vLLM's pool caches and evicts, by the owner that each block's hash contains."""

from collections import Counter
from typing import Any

from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from tenantzone_runtime.engine.modelless.block_hashes import owner_of, owners


class StockCache:
    """Observes a stock pool through vLLM's metrics hook.

    Args:
        scheduler: the scheduler of the pool, which has not got any requests yet.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.cached: Counter[int] = Counter()
        """Number of blocks with a hash, in use or not, by owner."""
        self.evicted: Counter[int] = Counter()
        """Number of blocks evicted since the start, by owner."""
        self._pool = scheduler.kv_cache_manager.block_pool
        self._pool.metrics_collector = self
        self._cache_full_blocks = self._pool.cache_full_blocks
        self._pool.cache_full_blocks = self._note_cached

    def evict_above(self, quotas: dict[int, int]) -> dict[int, int]:
        """Evict unused cached blocks of owners that exceed their quotas, least recently used first.

        This models LMCache's soft quotas: LMCache periodically evicts blocks above a quota, and guarantees no minimum.

        Args:
            quotas: the quotas in blocks, by owner.

        Returns:
            The number of evicted blocks, by owner.
        """
        over = {owner: self.cached[owner] - quota for owner, quota in quotas.items() if self.cached[owner] > quota}
        lost: Counter[int] = Counter()
        block = self._pool.free_block_queue.fake_free_list_head.next_free_block
        while over and block is not None and block.next_free_block is not None:
            following = block.next_free_block
            if block.block_hash is not None:
                owner = owner_of(block.block_hash)
                if over.get(owner):
                    self._pool.evict_blocks({block.block_id})
                    lost[owner] += 1
                    over[owner] -= 1
                    if not over[owner]:
                        del over[owner]
            block = following
        return lost

    # vLLM's metrics hook

    def on_block_allocated(self, block: KVCacheBlock) -> None:
        pass

    def on_block_accessed(self, block: KVCacheBlock) -> None:
        pass

    def on_block_evicted(self, block: KVCacheBlock) -> None:
        """Count an evicted block. vLLM also calls this for allocated blocks without a hash, which cached nothing."""
        if block.block_hash is not None:
            owner = owner_of(block.block_hash)
            self.cached[owner] -= 1
            self.evicted[owner] += 1

    def reset(self) -> None:
        self.cached.clear()

    def _note_cached(
        self, request: Request, *args: Any, num_cached_blocks: int, num_full_blocks: int, **kwargs: Any
    ) -> None:
        self._cache_full_blocks(
            request, *args, num_cached_blocks=num_cached_blocks, num_full_blocks=num_full_blocks, **kwargs
        )
        self.cached.update(owners(request.block_hashes[num_cached_blocks:num_full_blocks]))

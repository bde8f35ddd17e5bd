"""Puts our KV cache manager and block pool in the places of vLLM's own.

vLLM names both in module globals and offers no other way to choose them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from vllm.v1.core import kv_cache_coordinator
from vllm.v1.core.sched import scheduler as stock_scheduler

from tenantzone_runtime.engine.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.kv_cache_manager import ZoneKVCacheManager


@contextmanager
def zone_classes() -> Iterator[None]:
    """Let vLLM make our classes where it would make its own, until the block ends."""
    manager, pool = stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool
    stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool = ZoneKVCacheManager, ZoneBlockPool
    try:
        yield
    finally:
        stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool = manager, pool

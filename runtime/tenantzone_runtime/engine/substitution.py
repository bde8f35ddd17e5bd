"""Puts our KV cache manager, block pool and encoder cache in the places of vLLM's own.

vLLM names them in module globals and offers no other way to choose them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from vllm.v1.core import kv_cache_coordinator
from vllm.v1.core.sched import scheduler as stock_scheduler

from tenantzone_runtime.engine.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.encoder_cache import ZoneEncoderCacheManager
from tenantzone_runtime.engine.kv_cache_manager import ZoneKVCacheManager


@contextmanager
def zone_classes() -> Iterator[None]:
    """Let vLLM make our classes where it would make its own, until the block ends."""
    manager, pool = stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool
    encoder_cache = stock_scheduler.EncoderCacheManager
    stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool = ZoneKVCacheManager, ZoneBlockPool
    stock_scheduler.EncoderCacheManager = ZoneEncoderCacheManager
    try:
        yield
    finally:
        stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool = manager, pool
        stock_scheduler.EncoderCacheManager = encoder_cache

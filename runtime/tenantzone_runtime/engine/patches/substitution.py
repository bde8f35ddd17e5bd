"""Replaces vLLM's KV cache manager, block pool and encoder cache with ours.

vLLM refers to these classes by module globals and offers no other way to choose them.

Upstream change that would make this module unnecessary: arguments of vLLM's ``Scheduler`` for the classes of its KV
cache manager, block pool and encoder cache.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from vllm.v1.core import kv_cache_coordinator
from vllm.v1.core.sched import scheduler as stock_scheduler

from tenantzone_runtime.engine.blocks.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.blocks.encoder_cache import ZoneEncoderCacheManager
from tenantzone_runtime.engine.blocks.kv_cache_manager import ZoneKVCacheManager


@contextmanager
def zone_classes() -> Iterator[None]:
    """Make a vLLM without the hook create our classes instead of its own within the ``with`` block."""
    manager, pool = stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool
    encoder_cache = stock_scheduler.EncoderCacheManager
    stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool = ZoneKVCacheManager, ZoneBlockPool
    stock_scheduler.EncoderCacheManager = ZoneEncoderCacheManager
    try:
        yield
    finally:
        stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool = manager, pool
        stock_scheduler.EncoderCacheManager = encoder_cache

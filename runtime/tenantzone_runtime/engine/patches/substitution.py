"""Makes vLLM use our classes of KV cache manager, block pool and encoder cache.

vLLM looks these classes up as globals of its modules, and has no option to replace them.

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
    """Make vLLM create objects of our classes instead of its classes within the ``with`` block."""
    manager, pool = stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool
    encoder_cache = stock_scheduler.EncoderCacheManager
    stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool = ZoneKVCacheManager, ZoneBlockPool
    stock_scheduler.EncoderCacheManager = ZoneEncoderCacheManager
    try:
        yield
    finally:
        stock_scheduler.KVCacheManager, kv_cache_coordinator.BlockPool = manager, pool
        stock_scheduler.EncoderCacheManager = encoder_cache

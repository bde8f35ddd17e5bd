"""A pytest plugin that puts our classes in the place of vLLM's before vLLM's tests import them.

vLLM's tests construct `Scheduler` and `AsyncScheduler`. Ours is an `AsyncScheduler`; so its module is loaded once more
with `Scheduler` as the base, and vLLM's synchronous tests run the same code where they expect synchronous steps.

`check_supported` is switched off. It refuses flags and models that do not go with *zones*. What is asked here is
whether our classes do as vLLM's own, whatever the model.
"""

import importlib.util
import sys
from threading import RLock
from types import ModuleType
from unittest.mock import Mock

from vllm.v1.core import block_pool, encoder_cache_manager, kv_cache_manager
from vllm.v1.core.sched import async_scheduler, scheduler

from tenantzone_runtime.engine.blocks.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.blocks.encoder_cache import ZoneEncoderCacheManager
from tenantzone_runtime.engine.blocks.kv_cache_manager import ZoneKVCacheManager
from tenantzone_runtime.engine.core import scheduling


def pytest_configure() -> None:
    """Put the zone-aware classes in the places of vLLM's, wherever a module of its core names them."""
    synchronous = _load_synchronous()
    for module in (scheduling, synchronous):
        module.check_supported = lambda config, caches: None
        # Two tests make a scheduler without its constructor, and set by hand whatever stock's method reads. Ours reads
        # a few fields more.
        module.ZoneAwareScheduler.zone_lock = RLock()
        module.ZoneAwareScheduler.failed_reqs = {}
        module.ZoneAwareScheduler._pooling = False
        module.ZoneAwareScheduler._steps_in_flight = 0
        module.ZoneAwareScheduler._watch = Mock()
    _replace(
        {
            scheduler.Scheduler: synchronous.ZoneAwareScheduler,
            async_scheduler.AsyncScheduler: scheduling.ZoneAwareScheduler,
            kv_cache_manager.KVCacheManager: ZoneKVCacheManager,
            block_pool.BlockPool: ZoneBlockPool,
            encoder_cache_manager.EncoderCacheManager: ZoneEncoderCacheManager,
        }
    )


def _load_synchronous() -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{scheduling.__name__}_synchronous", scheduling.__file__)
    assert spec is not None, "it is a file"
    module = importlib.util.module_from_spec(spec)
    stock = async_scheduler.AsyncScheduler
    async_scheduler.AsyncScheduler = scheduler.Scheduler
    try:
        spec.loader.exec_module(module)
    finally:
        async_scheduler.AsyncScheduler = stock
    return module


def _replace(ours: dict[type, type]) -> None:
    """Under whatever name a module of vLLM's core holds one of its classes, it holds ours from now on."""
    for module in [module for name, module in sys.modules.items() if name.startswith("vllm.v1.core.")]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in ours:
                setattr(module, name, ours[value])

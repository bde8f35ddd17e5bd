"""A pytest plugin on top of ``conformance.substitution``: one zone owns the whole pool and every request.

Each block pool gets its zone when it is made, and the scheduler binds each request to the zone: vLLM's tests show no
seals. This includes tests of a KV cache manager or a block pool alone. There the manager binds a request before it
allocates blocks, and a test that calls a pool directly acts for its zone. But while one of our managers runs, it must
set the acting zone itself, as in an engine.

vLLM keeps cached blocks in its free queue, behind the free ones, and its tests look for them there. A zone keeps its
own order, so the tests, and only they, see both as one queue.
"""

import functools
import inspect
import sys
import time
from collections.abc import Callable
from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock
from vllm.v1.request import Request

from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_runtime.engine.blocks.block_pool import PoolView, ZoneBlockPool
from tenantzone_runtime.engine.blocks.kv_cache_manager import ZoneKVCacheManager
from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.engine.core.binding import Binder

TENANT = "everybody"
CONFIG = make_config(
    1,
    PoolConfig(namespace="conformance", name="pool"),
    (ZoneConfig(name=TENANT, tenant=TENANT, generation=1, reserved="100%"),),
)

_FINDS_BLOCKS = ("get_computed_blocks", "get_computed_blocks_for_connector", "allocate_slots", "cache_blocks")
"""The methods of a KV cache manager that a request passes before it has blocks, or more of them."""


def pytest_configure() -> None:
    """Give each block pool its zone, and bind each request to it."""
    ZoneBlockPool.__init__ = _declaring(ZoneBlockPool.__init__)
    ZoneBlockPool.at_work = False
    """Whether one of our managers is at work on the pool."""
    ZoneBlockPool.view = property(_view, _set_view)
    ZoneBlockPool.free_block_queue = property(_free_queue, _set_free_queue)
    Binder._find = lambda binder, request, now: binder._tenancy.zone_for(TENANT, now)
    for name, method in inspect.getmembers(ZoneKVCacheManager, inspect.isfunction):
        if name in _FINDS_BLOCKS:
            method = _binding(method)
        if not name.startswith("_"):
            setattr(ZoneKVCacheManager, name, _working(method))


def _declaring(construct: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(construct)
    def constructed(pool: ZoneBlockPool, *args: Any, **kwargs: Any) -> None:
        construct(pool, *args, **kwargs)
        pool.tenancy.apply(CONFIG, time.monotonic())

    return constructed


def _view(pool: ZoneBlockPool) -> PoolView:
    said: PoolView = vars(pool)["view"]
    if said.zone is None and not pool.at_work and TENANT in getattr(pool, "zones", ()):
        return _Default(pool, pool.zones[TENANT])
    return said


def _set_view(pool: ZoneBlockPool, view: PoolView) -> None:
    vars(pool)["view"] = PoolView(pool, None) if isinstance(view, _Default) else view


class _Default(PoolView):
    """The view of the zone's blocks, where a test of vLLM's uses the pool itself."""


class _FreeAndCached:
    """The blocks that no request uses, in the order in which they go.

    Args:
        free: vLLM's queue; it answers calls that are not for both together.
        pool: the pool whose zone's cached blocks follow.
    """

    def __init__(self, free: FreeKVCacheBlockQueue, pool: ZoneBlockPool) -> None:
        self._free = free
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._free, name)

    @property
    def num_free_blocks(self) -> int:
        return len(self.get_all_free_blocks())

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        cached = [self._pool.blocks[block_id] for zone in self._pool.zones.values() for block_id in zone.cached]
        return [*self._free.get_all_free_blocks(), *cached]


def _free_queue(pool: ZoneBlockPool) -> FreeKVCacheBlockQueue | _FreeAndCached:
    queue = vars(pool)["free_block_queue"]
    asking = sys._getframe(1).f_globals["__name__"]
    return _FreeAndCached(queue, pool) if asking.startswith("tests.") else queue


def _set_free_queue(pool: ZoneBlockPool, queue: FreeKVCacheBlockQueue) -> None:
    vars(pool)["free_block_queue"] = queue


def _binding(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def bound(manager: ZoneKVCacheManager, request: Request, *args: Any, **kwargs: Any) -> Any:
        if zone_of(request) is None:
            request.zone, request.peak = manager.block_pool.zones[TENANT], 0
        return method(manager, request, *args, **kwargs)

    return bound


def _working(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def worked(manager: ZoneKVCacheManager, *args: Any, **kwargs: Any) -> Any:
        pool = manager.block_pool
        before, pool.at_work = pool.at_work, True
        try:
            return method(manager, *args, **kwargs)
        finally:
            pool.at_work = before

    return worked

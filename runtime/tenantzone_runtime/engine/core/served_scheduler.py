"""Adapts vLLM's scheduler to the engine interface of housekeeping."""

from collections.abc import Iterable, Sequence
from itertools import chain
from threading import RLock

import vllm

from tenantzone_contract.cache.blocks import BlockUse
from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.engine.core.scheduling import ZoneAwareScheduler
from tenantzone_runtime.engine.core.served_migration import ServedZoneMigration
from tenantzone_runtime.housekeeping.engine import ServedMigration, ServedSharedTier, ServedTier
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Tenancy


class ServedScheduler:
    """The engine interface of housekeeping, implemented by a scheduler.

    It extends no vLLM class, so that types are checked against the interface.

    Args:
        scheduler: the scheduler of the zones.
    """

    engine_version: str = vllm.__version__

    def __init__(self, scheduler: ZoneAwareScheduler) -> None:
        self._scheduler = scheduler
        self._pool = scheduler.block_pool
        self.api_servers = int(getattr(scheduler.vllm_config.parallel_config, "_api_process_count", 1))
        self.tenancy: Tenancy = scheduler.tenancy
        self.block_ids = range(1, 1 + self._pool.capacity)
        """All block ids except 0, vLLM's null block."""
        groups = scheduler.kv_cache_manager.coordinator.single_type_managers
        self.block_size_tokens = min(int(caches.block_size) for caches in groups)
        self.tiers: Sequence[ServedTier] = scheduler.tiers.served
        self.shared_tiers: Sequence[ServedSharedTier] = scheduler.tiers.shared
        migration = scheduler.tiers.migration
        self.migration: ServedMigration | None = (
            None if migration is None else ServedZoneMigration(scheduler.zone_lock, migration, self.tenancy)
        )
        self.apply_config = scheduler.apply_config
        self.evict_cache = scheduler.evict_cache
        self.let_time_pass = scheduler.let_time_pass

    @property
    def zone_lock(self) -> RLock:
        return self._scheduler.zone_lock

    @property
    def free_blocks(self) -> int:
        return int(self._pool.free_block_queue.num_free_blocks)

    def running_zones(self) -> Iterable[Zone | None]:
        return map(zone_of, self._scheduler.running)

    @property
    def adapter_slots(self) -> int:
        config = self._scheduler.lora_config
        return 0 if config is None else int(config.max_loras)

    def put_adapters(self, values: list[Zone | str | None]) -> None:
        scheduler = self._scheduler
        for request in chain(scheduler.running, scheduler.kv_holding_waiting):
            if request.lora_request is not None:
                values += (zone_of(request), request.lora_request.lora_name)

    @property
    def encoder_embeddings(self) -> int:
        return int(self._scheduler.encoder_cache_manager.cache_size)

    def put_encodings(self, values: list[Zone | int]) -> None:
        self._scheduler.encoder_cache_manager.put_in_use(values)

    def use_of_unowned(self, block_id: int) -> BlockUse:
        block = self._pool.blocks[block_id]
        if block.ref_cnt > 0:
            return "in_use"
        return "free" if block.block_hash is None else "cached"

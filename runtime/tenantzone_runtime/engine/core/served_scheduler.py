"""Adapts the zone-aware scheduler to the interface through which housekeeping accesses an engine."""

from collections.abc import Iterable, Sequence
from itertools import chain
from threading import RLock
from typing import Any

import vllm

from tenantzone_contract.cache.blocks import BlockUse
from tenantzone_contract.cache.migration import MAX_BLOCKS, MigrationOrder, MigrationReport
from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.engine.core.scheduling import ZoneAwareScheduler
from tenantzone_runtime.housekeeping.engine import ServedMigration, ServedSharedTier, ServedTier
from tenantzone_runtime.shared.prompts import Prompts, WholePrompts, within
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Tenancy


class ServedZoneMigration:
    """Carries out migration orders, and reports their progress.

    Args:
        lock: the lock of the engine's zones.
        migration: the engine's migration.
        tenancy: the engine's zones. Its step times show how fast the engine computes prompts.
    """

    def __init__(self, lock: RLock, migration: Any, tenancy: Tenancy) -> None:
        # `migration` has no type, because its module is imported only if the engine has the connector.
        self._lock, self._migration, self._tenancy = lock, migration, tenancy

    def do(self, order: MigrationOrder) -> None:
        """Begin or stop a migration.

        Raises:
            MigrationError: the order can't be carried out now. The message states the reason.
        """
        if order.order == "stop":
            with self._lock:
                self._migration.stop(order.tenant, "stopped on request")
            return
        prompts: Prompts = order.prompts if order.order == "warm-up" else self._prompts(order.tenant)
        with self._lock:
            self._migration.begin(order, prompts)

    def report(self, tenant: str, *, with_prompts: bool) -> MigrationReport:
        """Returns the progress of the last migration of a tenant's zone, with the zone's prompts if requested."""
        prompts = tuple(within(self._prompts(tenant), MAX_BLOCKS)) if with_prompts else ()
        with self._lock:
            size, tokens = self._migration.chunk_bytes, self._migration.chunk_tokens
            report = self._migration.report(tenant)
            rate = self._tenancy.step_times.prompt_tokens_per_second
        return MigrationReport(
            tenant=tenant,
            chunk_bytes=size,
            chunk_tokens=tokens,
            moved_bytes=report.get("moved", 0) * size,
            prompt_tokens_per_second=rate,
            prompts=tuple(map(tuple, prompts)),
            **report,
        )

    def _prompts(self, tenant: str) -> WholePrompts:
        with self._lock:
            links = self._migration.recent.links(tenant)
        return WholePrompts(links)


class ServedScheduler:
    """Implements housekeeping's engine interface for a scheduler.

    It is not a subclass of vLLM's scheduler, so that mypy can check it against the interface.

    Args:
        scheduler: the scheduler with zones.
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

"""Work that the housekeeping thread does on an engine's zones, blocks and tiers, outside the engine's steps.

The thread holds the scheduler's lock during the work. It does the work in short parts, and releases the lock between
two parts so that a step can run.
"""

import time
from collections.abc import Iterable, Iterator
from itertools import chain

from vllm.v1.core.sched.scheduler import Scheduler

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.engine.core.early_requests import EarlyRequests
from tenantzone_runtime.engine.core.step_watch import StepWatch
from tenantzone_runtime.housekeeping.turns import hold_in_turns
from tenantzone_runtime.zones.blocks.purging import is_under_way
from tenantzone_runtime.zones.config.configure import Difference
from tenantzone_runtime.zones.model.zone import Zone

BLOCKS_AT_ONCE = 1000
"""Maximum number of blocks to evict before the lock is released. Evicting them takes tenths of a millisecond."""


class BesideSteps:
    """Applies configs, timeouts and resets to one engine.

    Args:
        scheduler: the engine's scheduler, with zones.
        early: the engine's requests that arrived before any zone was declared.
        watch: observes the engine's steps.
    """

    def __init__(self, scheduler: Scheduler, early: EarlyRequests, watch: StepWatch) -> None:
        self._scheduler = scheduler
        self._tenancy = scheduler.tenancy
        self._pool = scheduler.block_pool
        self._early = early
        self._watch = watch

    def apply_config(self, config: RuntimeConfig) -> dict[str, int]:
        """Enforce a new config from now on, zone by zone, first in the blocks and then in the tiers.

        Returns:
            Number of reserved blocks, by zone, that exceed the capacity of this engine.

        Raises:
            ConfigError: the config can't be enforced on this engine, which keeps enforcing the previous config.
        """
        enforcement = self._tenancy.enforcement
        plan = enforcement.plan(config)
        with self._scheduler.zone_lock:
            enforcement.begin(plan, time.monotonic())
        # Release the lock between parts, because thousands of zones take long, and steps must run meanwhile.
        changes = enforcement.changes(plan)
        hold_in_turns(self._scheduler.zone_lock, chain(self._make(changes), self._scheduler.tiers.apply(config)))
        with self._scheduler.zone_lock:
            self._pool.return_all_evicted(enforcement.end(plan))
        return {spec.name: spec.awaited for spec in plan.specs.values() if spec.awaited}

    def _make(self, changes: Difference) -> Iterator[None]:
        scheduler, pool = self._scheduler, self._pool
        had_zones = bool(self._tenancy.ledger.zones)
        for zone, evicted in self._tenancy.enforcement.make(changes, BLOCKS_AT_ONCE):
            pool.withdraw(zone)
            if zone.leaving or zone.spec.retention.no_store or is_under_way(zone):
                scheduler.encoder_cache_manager.forget(zone)
            scheduler.waiting.order_anew(zone)
            pool.return_evicted(zone, evicted)
            if not had_zones:
                self._early.adopt()
                had_zones = True
            yield
            if zone.spec.retention.no_store:
                yield from pool.forget_in_use(zone, BLOCKS_AT_ONCE)
        yield from pool.forget_withdrawn(BLOCKS_AT_ONCE)

    def evict_cache(self) -> int:
        """Evict all cached blocks of all zones, and all chunks in tiers. Returns the number of evicted blocks only."""
        with self._scheduler.zone_lock:
            zones = list(self._tenancy.ledger.zones.values())
        evicted: list[int] = []
        hold_in_turns(
            self._scheduler.zone_lock, chain(self._evict_cache(zones, evicted), self._scheduler.tiers.forget_all())
        )
        return sum(evicted)

    def _evict_cache(self, zones: Iterable[Zone], evicted: list[int]) -> Iterator[None]:
        for zone in zones:
            while zone.cached:
                evicted.append(self._pool.evict(zone, "reset", BLOCKS_AT_ONCE))
                yield

    def let_time_pass(self) -> None:
        """Apply timeouts of zones, loans and tiers."""
        hold_in_turns(self._scheduler.zone_lock, self._let_time_pass())

    def _let_time_pass(self) -> Iterator[None]:
        scheduler, free_block_queue = self._scheduler, self._pool.free_block_queue
        for evicted in self._tenancy.upkeep_in_parts(
            time.monotonic(), lambda: free_block_queue.num_free_blocks, BLOCKS_AT_ONCE
        ):
            self._pool.return_all_evicted(evicted)
            yield
        scheduler.encoder_cache_manager.forget_old(time.monotonic())
        yield
        yield from scheduler.tiers.upkeep()
        yield from self._watch.judge(time.monotonic())
        scheduler.publish_events()

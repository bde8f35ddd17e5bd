"""The scheduler's access to the tiers below an engine's blocks."""

from collections.abc import Iterator, Sequence
from typing import Any

from vllm.config import VllmConfig
from vllm.v1.request import Request

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.housekeeping.engine import ServedSharedTier, ServedTier
from tenantzone_runtime.housekeeping.memory_tier import MemoryTier
from tenantzone_runtime.offloading_flags import CONNECTOR
from tenantzone_runtime.zones.model.zone import Zone


class NoTiers:
    """Replaces ``Tiers`` in an engine without tiers. Its methods do nothing."""

    served: Sequence[ServedTier] = ()
    shared: Sequence[ServedSharedTier] = ()
    migration: Any = None
    """Moves a zone's cache to shared storages. None if the engine has no shared storages."""

    def know_blocks(self, pool: Any) -> None:
        """Set the engine's block pool."""

    def bind(self, request: Request, zone: Zone | None) -> None:
        """Set the zone of a request before it is added."""

    def preempted(self, request: Request) -> None:
        """Record that a running request was preempted. Its blocks may now belong to other requests."""

    def is_looking_up(self, request: Request) -> bool:
        """Returns whether a waiting request waits for a tier to look up or load its chunks."""
        return False

    # Outside the steps, in parts between which steps may run

    def apply(self, config: RuntimeConfig) -> Iterator[None]:
        """Enforce a new config of the engine's zones and of their shares of the tiers.

        The engine begins a purge before its tiers begin it, and completes the purge after them. In between, the zone's
        requests find nothing in a tier, and requests from before the purge store nothing.
        """
        return iter(())

    def upkeep(self) -> Iterator[None]:
        """Apply timeouts to zones and their chunks. Called several times a second."""
        return iter(())

    def forget_all(self) -> Iterator[None]:
        """Make all chunks in the tiers unfindable. Called after the salt key has changed."""
        return iter(())


class Tiers(NoTiers):
    """The CPU memory tier, and the tiers below it: a disk, and storages that engines share.

    Args:
        connector: the scheduler's side of the KV connector.
    """

    def __init__(self, connector: Any) -> None:
        # Not typed, because the connector's module imports modules that older versions of vLLM do not have.
        self._scheduler = connector.scheduler
        manager = self._scheduler.manager
        self._all = (manager.primary_tier, *manager.secondary_tiers)
        disks = [tier.below for tier in manager.secondary_tiers if tier.tier_type == "disk"]
        self.served = (MemoryTier(manager.primary_tier.tier), *disks)
        self.shared = tuple(tier.below for tier in manager.secondary_tiers if tier.tier_type == "shared")
        self.migration = self._scheduler.migration if self.shared else None

    def know_blocks(self, pool: Any) -> None:
        self._scheduler.know_blocks(pool)

    def bind(self, request: Request, zone: Zone | None) -> None:
        self._scheduler.bind(request, zone)

    def preempted(self, request: Request) -> None:
        self._scheduler.preempted(request)

    def is_looking_up(self, request: Request) -> bool:
        return bool(self._scheduler.is_looking_up(request))

    def apply(self, config: RuntimeConfig) -> Iterator[None]:
        # From the top tier down, so that no tier copies evicted chunks to the next tier.
        self._scheduler.migration.apply(config)
        for tier in self._all:
            yield from tier.apply(config)

    def upkeep(self) -> Iterator[None]:
        for tier in self._all:
            yield from tier.upkeep()
        yield from self._scheduler.migration.upkeep()

    def forget_all(self) -> Iterator[None]:
        for tier in self._all:
            yield from tier.forget_all()


def tiers_of(connector: Any, config: VllmConfig) -> NoTiers:
    """Returns the tiers of the project's connector, or `NoTiers`. ``check_supported`` refuses other connectors."""
    has_tiers = connector is not None and config.kv_transfer_config.kv_connector == CONNECTOR
    return Tiers(connector) if has_tiers else NoTiers()

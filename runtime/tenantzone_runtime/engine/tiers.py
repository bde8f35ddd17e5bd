"""The tiers below an engine's blocks, as its scheduler uses them."""

from collections.abc import Iterator, Sequence
from typing import Any

from vllm.config import VllmConfig
from vllm.v1.request import Request

from tenantzone_contract.config import RuntimeConfig
from tenantzone_runtime.housekeeping.engine import ServedSharedTier, ServedTier
from tenantzone_runtime.housekeeping.memory_tier import MemoryTier
from tenantzone_runtime.offloading_flags import CONNECTOR
from tenantzone_runtime.zones.zone import Zone


class NoTiers:
    """An engine that has none."""

    served: Sequence[ServedTier] = ()
    shared: Sequence[ServedSharedTier] = ()
    migration: Any = None
    """Moves a zone's cache; None: there are no storages to which it could."""

    def know_blocks(self, pool: Any) -> None:
        """Know the engine's blocks."""

    def bind(self, request: Request, zone: Zone | None) -> None:
        """Say whose a request is that is about to come."""

    def preempted(self, request: Request) -> None:
        """Note that a running request was sent back to wait, and that its blocks may be others' from now on."""

    def is_looking_up(self, request: Request) -> bool:
        """Whether a waiting request waits for what a tier is about to have."""
        return False

    # Beside the steps, in parts, between which there may be steps

    def apply(self, config: RuntimeConfig) -> Iterator[None]:
        """Enforce a new config of the engine's zones, with their shares of the tiers.

        A purge that it asks for has begun in the engine's blocks before, and is complete there after it: between, the
        zone's requests find nothing in a tier, and those from before it store nothing.
        """
        return iter(())

    def upkeep(self) -> Iterator[None]:
        """Do what time does to zones and their chunks; to be called several times a second."""
        return iter(())

    def forget_all(self) -> Iterator[None]:
        """Find nothing again of what is in the tiers: the salt key is another one."""
        return iter(())


class Tiers(NoTiers):
    """CPU memory, and what there is below it: a disk, and storages that engines share.

    Args:
        connector: the scheduler's side of the zones' connector.
    """

    def __init__(self, connector: Any) -> None:
        # Typed where it is made: its module is imported with the connector only, whose vLLM modules older ones lack.
        self._scheduler = connector.scheduler
        manager = self._scheduler.manager
        self._all = (manager.primary_tier, *manager.secondary_tiers)
        disks = [tier.disk for tier in manager.secondary_tiers if tier.tier_type == "disk"]
        self.served = (MemoryTier(manager.primary_tier.tier), *disks)
        self.shared = tuple(tier.shared for tier in manager.secondary_tiers if tier.tier_type == "shared")
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
        # From above: what one tier gives up no other gets from it any more.
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
    """The tiers of an engine with such a connector; none behind another one than the zones' own, which is refused."""
    has_tiers = connector is not None and config.kv_transfer_config.kv_connector == CONNECTOR
    return Tiers(connector) if has_tiers else NoTiers()

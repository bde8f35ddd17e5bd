"""The interface of an engine that housekeeping uses. The adapter of vLLM and the tests' simulated engine implement it.

An engine has two interfaces: the arbiter uses ``zones.engine.Engine`` within the engine's steps, and housekeeping uses
``ServedEngine`` outside of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tenantzone_contract.cache.blocks import BlockUse
from tenantzone_contract.cache.migration import MigrationOrder, MigrationReport
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.shared.figures import SharedFigures
from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.tiers.tier import Tier


class ServedTier(Protocol):
    """A tier below the engine's blocks."""

    @property
    def tier(self) -> Tier:
        """The zones' shares of the tier, always the same object. To read zones, callers must hold the engine's lock."""

    @property
    def problem(self) -> str:
        """The reason why the tier can't store or load now; empty if it can. Thread-safe."""

    def take_receipts(self) -> Sequence[Receipt]:
        """Returns a receipt for each purge and each removal of a zone that has ended since the last call.

        A purge or removal ends when all files are removed.

        The caller must hold the lock. A tier that frees chunks immediately returns no receipts. In such a tier, the
        zones themselves have the results of purges.
        """


class ServedSharedTier(Protocol):
    """A tier that the engine shares with other engines. The engine owns none of the tier's chunks."""

    @property
    def zones(self) -> Mapping[str, SharedZone]:
        """The zones of the config in force, by tenant. The caller must hold the engine's lock."""

    def figures(self) -> SharedFigures:
        """Returns the tier's statistics for all zones together. The caller must hold the lock."""

    def take_receipts(self) -> Sequence[Receipt]:
        """Returns receipts as :meth:`ServedTier.take_receipts` does. The caller must hold the lock."""


class ServedMigration(Protocol):
    """Moves a zone's cache to or from storages that engines share. Thread-safe."""

    def do(self, order: MigrationOrder) -> None:
        """Begin or stop a migration.

        Raises:
            MigrationError: the order can't be carried out now.
        """

    def report(self, tenant: str, *, with_prompts: bool) -> MigrationReport:
        """Returns the progress of the last migration of a tenant's zone, optionally with the zone's latest prompts."""


class ServedEngine(Protocol):
    """An engine that runs steps while another thread does housekeeping.

    All amounts are in KV-cache blocks. Unless stated otherwise, only the housekeeping thread uses the attributes and
    methods. Before this thread starts, the thread that creates the engine may use them.
    """

    @property
    def engine_version(self) -> str:
        """Version of the engine for reports, metrics and the journal."""

    @property
    def api_servers(self) -> int:
        """Number of API server processes with which the engine was started. It never changes."""

    @property
    def block_ids(self) -> range:
        """Ids of the blocks that requests can use. Their number is the tenancy's capacity. It never changes."""

    @property
    def block_size_tokens(self) -> int:
        """Number of tokens per block; the smallest number if groups of layers differ. It never changes."""

    @property
    def tenancy(self) -> Tenancy:
        """The engine's zones, always the same object. The tenancy's clock is ``time.monotonic``."""

    @property
    def zone_lock(self) -> AbstractContextManager[object]:
        """Lock for exclusive access to the zones.

        A step holds the lock while it reads or changes zones, and so does code that adds or ends a request. The lock is
        free between two steps. Housekeeping takes the lock many times a second, each time for some tenths of a
        millisecond. The lock need not be reentrant.
        """

    @property
    def free_blocks(self) -> int:
        """Number of blocks that no zone holds. The caller must hold the lock. Reading the number creates no objects."""

    @property
    def tiers(self) -> Sequence[ServedTier]:
        """The engine's tiers below its blocks, the fastest tier first. They never change."""

    @property
    def shared_tiers(self) -> Sequence[ServedSharedTier]:
        """Tiers that the engine shares with other engines, below the engine's own tiers. They never change."""

    @property
    def migration(self) -> ServedMigration | None:
        """Moves zones' caches; None if the engine uses no shared storages. Always the same object."""

    def running_zones(self) -> Iterable[Zone | None]:
        """Returns the zone of each running request; None for a request that arrived before any zone was declared.

        The caller must hold the lock during the call and the iteration.
        """

    @property
    def adapter_slots(self) -> int:
        """Maximum number of LoRA adapters that requests can use at once; 0 without adapters. It never changes."""

    def put_adapters(self, values: list[Zone | str | None]) -> None:
        """For each request that has an adapter slot, append the request's zone and the adapter's name to ``values``.

        The caller must hold the lock. The method creates no other objects.
        """

    @property
    def encoder_embeddings(self) -> int:
        """Capacity of the encoder cache in embeddings; 0 if the model has no encoder. It never changes."""

    def put_encodings(self, values: list[Zone | int]) -> None:
        """For each encoding in use that a zone owns, append the zone and the number of embeddings to ``values``.

        The caller must hold the lock. The method creates no other objects.
        """

    def use_of_unowned(self, block_id: int) -> BlockUse:
        """Returns the use of a block that belongs to no zone.

        Thread-safe without the lock. A block map calls the method thousands of times. If the use changes during a call,
        the method may return either the old or the new use.
        """

    def apply_config(self, config: RuntimeConfig) -> Mapping[str, int]:
        """Enforce a config from now on, in the tiers as well. Requests in flight continue.

        The method takes the lock. If there is much to do, it releases the lock repeatedly, so that steps can run.

        Returns:
            Number of reserved blocks, by zone, that exceed the capacity of this engine.

        Raises:
            ConfigError: the config can't be enforced on this engine. The previous config stays in force.
            Exception: enforcement failed midway. The config may be in force in some zones only. The caller must apply
                the previous config next.
        """

    def evict_cache(self) -> int:
        """Evict all cached blocks of all zones, and all chunks in tiers. Blocks in use stay.

        The method takes the lock. If there is much to do, it releases the lock repeatedly, so that steps can run.
        Returns the number of evicted blocks, without chunks in tiers.
        """

    def let_time_pass(self) -> None:
        """Apply timeouts to zones and loans, in the tiers as well, and free the blocks that are evicted.

        The method takes the lock. Call it several times a second, even when no steps run.
        """

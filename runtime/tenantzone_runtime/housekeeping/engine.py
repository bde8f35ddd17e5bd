"""The engine interface of housekeeping. vLLM's adapter implements it, and so does the simulated engine of the tests.

An engine has two interfaces: ``zones.engine.Engine`` for the arbiter within its steps, and ``ServedEngine`` outside.
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
        """Tier with its chunks, always the same object. Its zones are read with the engine's lock held."""

    @property
    def problem(self) -> str:
        """Human-readable reason why the tier can't store or load now. Empty if it can. Read from any thread."""

    def take_receipts(self) -> Sequence[Receipt]:
        """Returns the receipts for files of purges and removed zones since the last call. Called with the lock held.

        A tier that frees chunks immediately has no receipts, because its zones have the results of purges.
        """


class ServedSharedTier(Protocol):
    """A tier that the engine shares with other engines, in which it owns no chunks."""

    @property
    def zones(self) -> Mapping[str, SharedZone]:
        """Zones of the config in force, by tenant. Read with the engine's lock held."""

    def figures(self) -> SharedFigures:
        """Returns the totals at one moment. Called with the lock held."""

    def take_receipts(self) -> Sequence[Receipt]:
        """Returns receipts as :meth:`ServedTier.take_receipts` does."""


class ServedMigration(Protocol):
    """Moves a zone's cache to or from storages that engines share. Called from any thread."""

    def do(self, order: MigrationOrder) -> None:
        """Begin or stop a migration.

        Raises:
            MigrationError: the order can't be carried out now.
        """

    def report(self, tenant: str, *, with_prompts: bool) -> MigrationReport:
        """Returns the progress of the last migration of a tenant's zone, optionally with its most recent prompts."""


class ServedEngine(Protocol):
    """An engine that runs steps while another thread does housekeeping.

    All amounts are in KV-cache blocks. Unless stated otherwise, only the housekeeping thread uses these attributes and
    methods, and before it runs, the thread that creates the engine.
    """

    @property
    def engine_version(self) -> str:
        """Version of the engine for reports, metrics and the journal."""

    @property
    def api_servers(self) -> int:
        """Number of API server processes that the engine was started with. Always the same."""

    @property
    def block_ids(self) -> range:
        """Ids of the blocks that requests can use, as many as the tenancy's capacity. Always the same."""

    @property
    def block_size_tokens(self) -> int:
        """Number of tokens per block, or the minimum if groups of layers differ. Always the same."""

    @property
    def tenancy(self) -> Tenancy:
        """Zones of the engine, always the same object. Its clock is ``time.monotonic``."""

    @property
    def zone_lock(self) -> AbstractContextManager[object]:
        """Lock for exclusive access to the zones.

        A step holds the lock while it reads or changes zones, and so does code that adds or ends a request. The lock is
        free between two steps. Housekeeping takes it many times a second, for some tenths of a millisecond, and does
        not reenter it.
        """

    @property
    def free_blocks(self) -> int:
        """Number of blocks that no zone holds. Read with the lock held. Reading it creates no objects."""

    @property
    def tiers(self) -> Sequence[ServedTier]:
        """Tiers of the engine below its blocks, fastest first. Always the same."""

    @property
    def shared_tiers(self) -> Sequence[ServedSharedTier]:
        """Tiers that the engine shares with other engines, below its own tiers. Always the same."""

    @property
    def migration(self) -> ServedMigration | None:
        """Moves zones' caches. None if the engine uses no shared storages. Always the same."""

    def running_zones(self) -> Iterable[Zone | None]:
        """Returns the zone of each running request, or None for a request from before any zone was declared.

        Called and iterated with the lock held.
        """

    @property
    def adapter_slots(self) -> int:
        """Maximum number of LoRA adapters that requests can use at once, or 0 without adapters. Always the same."""

    def put_adapters(self, values: list[Zone | str | None]) -> None:
        """Append two values for each request that has an adapter slot: its zone, and its adapter's name.

        Called with the lock held; it creates no other objects.
        """

    @property
    def encoder_embeddings(self) -> int:
        """Capacity of the encoder cache in embeddings, or 0 if the model has no encoder. Always the same."""

    def put_encodings(self, values: list[Zone | int]) -> None:
        """Append two values for each encoding in use that a zone owns: the zone, and the number of embeddings.

        Called with the lock held; it creates no other objects.
        """

    def use_of_unowned(self, block_id: int) -> BlockUse:
        """Returns the use of a block that belongs to no zone.

        Called from any thread and without the lock, thousands of times for a block map. If the use is changing, either
        answer is right.
        """

    def apply_config(self, config: RuntimeConfig) -> Mapping[str, int]:
        """Enforce a config from now on, in the tiers as well. Requests in flight continue.

        Takes the lock itself. If there is much to do, releases it repeatedly so that steps can run.

        Returns:
            Number of reserved blocks, by zone, that exceed the capacity of this engine.

        Raises:
            ConfigError: the config can't be enforced on this engine; the previous config stays in force.
            Exception: enforcement failed midway. The config may be in force in some zones only, and evicted blocks are
                free. The caller applies the previous config next.
        """

    def evict_cache(self) -> int:
        """Evict all cached blocks of all zones, and all chunks in tiers. Blocks in use stay.

        Takes the lock itself. If there is much to do, releases it repeatedly so that steps can run.
        Returns the number of evicted blocks, without chunks in tiers.
        """

    def let_time_pass(self) -> None:
        """Apply timeouts to zones and loans, in the tiers as well, and free the blocks that are evicted.

        Takes the lock itself. Called several times a second, whether or not steps run.
        """

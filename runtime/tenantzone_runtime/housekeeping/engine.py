"""The engine interface of housekeeping. vLLM's adapter implements it, and so does the simulated engine of the tests.

An engine has two interfaces: ``zones.engine.Engine`` for the arbiter within its steps, and this one outside them.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tenantzone_contract.blocks import BlockUse
from tenantzone_contract.config import RuntimeConfig
from tenantzone_contract.migration import MigrationOrder, MigrationReport
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.shared.figures import SharedFigures
from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.tier import Tier
from tenantzone_runtime.zones.zone import Zone


class ServedTier(Protocol):
    """A tier below the engine's blocks."""

    @property
    def tier(self) -> Tier:
        """The tier with its chunks, always the same object. Its zones are read with the engine's lock held."""

    @property
    def problem(self) -> str:
        """Why it can't store or load now, for people; empty if it can. Read from any thread."""

    def take_receipts(self) -> Sequence[Receipt]:
        """Returns the outcomes for files of purges and removed zones since the last call. Called with the lock held.

        A tier that frees chunks immediately has no receipts: the results of its purges are in its zones.
        """


class ServedSharedTier(Protocol):
    """A tier that the engine shares with others, in which it owns no chunks."""

    @property
    def zones(self) -> Mapping[str, SharedZone]:
        """The zones of the config in force, by tenant. Read with the engine's lock held."""

    def figures(self) -> SharedFigures:
        """Returns the totals at one moment. Called with the lock held."""

    def take_receipts(self) -> Sequence[Receipt]:
        """Returns receipts like a :class:`ServedTier`."""


class ServedMigration(Protocol):
    """Moves a zone's cache to storages that engines share, or up from there. Called from any thread."""

    def do(self, order: MigrationOrder) -> None:
        """Begin or stop a migration.

        Raises:
            MigrationError: the order can't be carried out now.
        """

    def report(self, tenant: str, *, with_prompts: bool) -> MigrationReport:
        """Returns the progress of the last migration of a tenant's zone, optionally with its most recent prompts."""


class ServedEngine(Protocol):
    """An engine that runs steps while another thread does housekeeping.

    All amounts are KV-cache blocks. Unless stated otherwise, the housekeeping thread uses these attributes and methods;
    before it runs, the thread that creates the engine does.
    """

    @property
    def engine_version(self) -> str:
        """The engine's version in reports, metrics and the journal."""

    @property
    def api_servers(self) -> int:
        """The number of API server processes that it was started with; 0 for none. Always the same."""

    @property
    def block_ids(self) -> range:
        """The blocks that requests can use, as many as the tenancy's capacity. Always the same."""

    @property
    def block_size_tokens(self) -> int:
        """Tokens of one block, the minimum if groups of layers differ. Always the same."""

    @property
    def tenancy(self) -> Tenancy:
        """The engine's zones, always the same object. Its clock is ``time.monotonic``."""

    @property
    def zone_lock(self) -> AbstractContextManager[object]:
        """The lock that gives its holder exclusive access to the zones.

        A step holds it while it reads or changes zones, and so does code that adds or ends a request; it is free
        between two steps. It is taken many times a second, is not reentered, and is held for some tenths of a
        millisecond.
        """

    @property
    def free_blocks(self) -> int:
        """Blocks that no zone holds. Read with the lock held; reading it creates no objects."""

    @property
    def tiers(self) -> Sequence[ServedTier]:
        """The tiers below its blocks, the fastest first; empty if there are none. Always the same."""

    @property
    def shared_tiers(self) -> Sequence[ServedSharedTier]:
        """The tiers that it shares with others, below its own; empty if there are none. Always the same."""

    @property
    def migration(self) -> ServedMigration | None:
        """Moves zones' caches; None if there are no storages to move them to. Always the same."""

    def running_zones(self) -> Iterable[Zone | None]:
        """Returns the zone of each running request; None for a request that arrived before any zone was declared.

        Called and iterated with the lock held.
        """

    @property
    def adapter_slots(self) -> int:
        """LoRA adapters that requests can use at once; 0 if it has none. Always the same."""

    def put_adapters(self, values: list[Zone | str | None]) -> None:
        """Append two values for each request that has an adapter slot: its zone, and its adapter's name.

        Called with the lock held; it creates no other objects.
        """

    @property
    def encoder_embeddings(self) -> int:
        """Embeddings that the encoder cache holds; 0 if the model has no encoder. Always the same."""

    def put_encodings(self, values: list[Zone | int]) -> None:
        """Append two values for each encoding of a zone that requests use: the zone, and its embeddings.

        Called with the lock held; it creates no other objects.
        """

    def use_of_unowned(self, block_id: int) -> BlockUse:
        """Returns the use of a block that belongs to no zone.

        Called from any thread and without the lock, thousands of times for a picture: for a block that is about to
        change, either answer is right.
        """

    def apply_config(self, config: RuntimeConfig) -> Mapping[str, int]:
        """Enforce a config from now on, in the tiers too; requests in flight continue.

        It takes the lock itself, and releases it for steps in between if there is much to do.

        Returns:
            By zone, the reserved blocks for which this engine is too small.

        Raises:
            ConfigError: the config can't be enforced on this engine; the previous one stays in force.
            Exception: it failed midway. Some zones may follow the config, but no block is lost: blocks evicted until
                then are free. The previous config is applied next.
        """

    def evict_cache(self) -> int:
        """Evict all that zones keep cached, in the tiers too; blocks in use stay.

        Returns the number of evicted blocks, without those in tiers.
        It takes the lock itself, and releases it for steps in between if there is much to do.
        """

    def let_time_pass(self) -> None:
        """Apply timeouts to zones and loans, in the tiers too, and return the blocks that are evicted.

        It takes the lock itself; called several times a second, whether or not steps run.
        """

"""What housekeeping asks of an engine. vLLM's adapter is such an engine, and so is the simulated one of the tests.

An engine has two ports. In its steps it is ``zones.engine.Engine`` to the arbiter; beside them it is this.
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
        """Whose chunks it has, always the same object. Its zones are read with the engine's lock held."""

    @property
    def problem(self) -> str:
        """What keeps it from storing or loading now, for people; empty: nothing does. Read from any thread."""

    def take_receipts(self) -> Sequence[Receipt]:
        """What became of the files of purges and of zones that went, since the last call. Called with the lock held.

        A tier whose chunks are free at once has none to give: what a purge came to there is in its zones.
        """


class ServedSharedTier(Protocol):
    """A tier that the engine shares with others, in which it owns no chunks."""

    @property
    def zones(self) -> Mapping[str, SharedZone]:
        """Of the config in force, by tenant. Read with the engine's lock held."""

    def figures(self) -> SharedFigures:
        """What there is in all, of one moment. Called with the lock held."""

    def take_receipts(self) -> Sequence[Receipt]:
        """As of a :class:`ServedTier`."""


class ServedMigration(Protocol):
    """Moves what a zone has cached to storages that engines share, or up from there. Called from any thread."""

    def do(self, order: MigrationOrder) -> None:
        """Begin what is asked for, or stop it.

        Raises:
            MigrationError: it can't be done now.
        """

    def report(self, tenant: str, *, with_prompts: bool) -> MigrationReport:
        """How far what was asked for a tenant's zone has come; with the prompts that it used last, if that is asked."""


class ServedEngine(Protocol):
    """An engine that goes on making steps while another thread keeps house.

    All amounts are KV-cache blocks. Whatever is read or called here is so by the housekeeping thread, unless it says
    otherwise; first, before that thread runs, by the one that makes the engine.
    """

    @property
    def engine_version(self) -> str:
        """What reports, metrics and the journal name as the engine's version."""

    @property
    def api_servers(self) -> int:
        """API server processes that it was started with; 0: it has none. Always the same."""

    @property
    def block_ids(self) -> range:
        """Of the blocks that requests can use: as many as the tenancy's capacity. Always the same."""

    @property
    def block_size_tokens(self) -> int:
        """Tokens that one block holds, the fewest where that differs between groups of layers. Always the same."""

    @property
    def tenancy(self) -> Tenancy:
        """The engine's zones, always the same object. Its clock is ``time.monotonic``."""

    @property
    def zone_lock(self) -> AbstractContextManager[object]:
        """The lock that gives whoever holds it the zones for itself.

        A step holds it while it reads or changes them, and so does whatever takes a request on or ends one; it is free
        between two steps.

        It is taken many times a second and never twice at once, and held for some tenths of a millisecond.
        """

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds. Read with the lock held; it makes nothing."""

    @property
    def tiers(self) -> Sequence[ServedTier]:
        """The tiers below its blocks, the fastest first; none: it has none. Always the same."""

    @property
    def shared_tiers(self) -> Sequence[ServedSharedTier]:
        """The tiers that it shares with others, below its own; none: it has none. Always the same."""

    @property
    def migration(self) -> ServedMigration | None:
        """Moves zones' caches; None: there are no storages to which it could. Always the same."""

    def running_zones(self) -> Iterable[Zone | None]:
        """The zone of each request that runs; None: it came before any zone was declared.

        Called and gone through with the lock held.
        """

    @property
    def adapter_slots(self) -> int:
        """LoRA adapters with which requests can run at once; 0: it takes none. Always the same."""

    def put_adapters(self, values: list[Zone | str | None]) -> None:
        """Append two values for each request that has an adapter slot: its zone, and its adapter's name.

        Called with the lock held; it makes nothing else.
        """

    @property
    def encoder_embeddings(self) -> int:
        """Embeddings that the encoder cache holds; 0: the model has no encoder. Always the same."""

    def put_encodings(self, values: list[Zone | int]) -> None:
        """Append two values for each encoding of a zone that requests use: the zone, and its embeddings.

        Called with the lock held; it makes nothing else.
        """

    def use_of_unowned(self, block_id: int) -> BlockUse:
        """What a block is used for that belongs to no zone.

        Called from any thread and without the lock, thousands of times for a picture: of a block that is about to
        change, either answer is right.
        """

    def apply_config(self, config: RuntimeConfig) -> Mapping[str, int]:
        """Enforce a config from now on, in the tiers, too; requests in flight stay.

        It takes the lock itself, and lets steps be made in between if there is much to do.

        Returns:
            Blocks of reservations that this engine is too small for, by zone.

        Raises:
            ConfigError: it can't be enforced on this engine; what was enforced before still is.
            Exception: it failed in the midst. Some zones may follow it, but no block is lost: what was evicted until
                then is free. The config before is applied next.
        """

    def evict_cache(self) -> int:
        """Evict all that zones keep cached, in the tiers, too; what requests use stays.

        Returns how many blocks that were, without those in tiers.

        It takes the lock itself, and lets steps be made in between if there is much to do.
        """

    def let_time_pass(self) -> None:
        """Do what time alone does to zones and loans, in the tiers, too, and return the blocks that go.

        It takes the lock itself; called several times a second, whether steps are made or not.
        """

"""The engine's report on its config and on each zone's blocks, which the operator reads from the admin port.

Any pod that matches a pool's labels may have sent a report. Therefore, all names and numbers have bounds, so that the
operator can write any accepted report into a status.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tenantzone_contract.reports.parts import MAX_TIERS, Blocks, Count, Name, Part, TierText, UnixTime
from tenantzone_contract.reports.zone_report import ZoneReport

REPORT_VERSION: Final = 1

REPORT_PATH = "/report"
HEALTH_PATH = "/healthz"
METRICS_PATH = "/metrics"

DEFAULT_ADMIN_PORT = 9464

MAX_API_SERVERS: Final = 1024
"""Maximum number of API server processes of one engine."""

MAX_LAGS: Final = 16
"""Maximum number of differences between one API server process and its engine core."""


class Rejection(Part, frozen=True, kw_only=True):
    """A config that the engine refused. The engine's previous config is still in force."""

    generation: Count | None = None
    """Generation of the refused config, or None if the file is unreadable or untrusted."""
    error: str
    untrusted: bool = False
    """Whether the reason for the refusal is an invalid signature, or that a newer signed config exists."""
    newest_generation: Count | None = None
    """Generation of the newest signed config, if the refused config is older than that config; None otherwise."""
    unix_time: UnixTime = 0.0


class ConfigStatus(Part, frozen=True):
    """The config that is in force on an engine, and the rejection of the newest config if the engine refused it."""

    applied_generation: Count | None = None
    applied_hash: Name | None = None
    applied_unix_time: UnixTime | None = None
    rejected: Rejection | None = None
    """Rejection of the newest config, or None if it was not refused."""
    demands_signature: bool = False
    """Whether the engine refuses unsigned configs."""


class IdentityReport(Part, frozen=True, kw_only=True):
    """The method by which an engine's frontend identifies tenants."""

    kind: Name = ""
    """An :data:`~tenantzone_contract.zone_config.identity.IdentityKind`. A newer engine may report other kinds."""
    digest: Name
    """Digest of the active identity settings, from `tenantzone_contract.zone_config.identity.identity_digest`."""
    problem: str = ""
    """Reason why the frontend can't identify any tenant. Empty if the frontend identifies tenants."""
    keys: Name = ""
    """Digest of the API keys that the engine core has read, equal in each process with the same keys.

    Empty if there are no keys. The digest uses a random secret that only the engine's processes know. Therefore, the
    digest distinguishes two sets of keys of one engine, but can't be used to test guesses of an API key.
    """


class ApiServerReport(Part, frozen=True):
    """The config and keys that one API server process of an engine enforces."""

    process: Count
    """Process id in the engine's container."""
    config_generation: Count | None = None
    config_hash: Name | None = None
    """Hash of the config in force in the process, or None if no config is in force yet."""
    keys: Name = ""
    """Digest of the API keys in force, as in :class:`IdentityReport`."""
    salt_key: Name = ""
    """Id of the salt key, as in ``SaltKeyStatus.id``."""
    lags: Annotated[tuple[Name, ...], Meta(max_length=MAX_LAGS)] = ()
    """A :data:`Lag` for each difference from the engine core. A newer engine may report other differences."""


class LoanReport(Part, frozen=True):
    """Blocks of one zone's reservation that another zone holds. Zones are identified by their tenants."""

    lender: Name
    borrower: Name
    blocks: Blocks
    since_unix_time: UnixTime
    due_unix_time: UnixTime | None = None
    """Time at which the loan is due, or None if the lender may reclaim the blocks whenever it needs them."""


class SaltKeyStatus(Part, frozen=True):
    """The salt key in force on an engine."""

    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{0,64}\Z")] = ""
    """Id (not the content) of the pool's key. Empty if the engine uses a temporary key of its own."""
    error: str = ""
    """Reason why the current key file is not in force. Empty if it is in force, or if no key file is mounted."""


class AdminPortStatus(Part, frozen=True):
    """Access control of the engine's admin port."""

    open: bool = False
    """Whether the port answers without the pool's token."""
    error: str = ""
    """Reason why the current token file is not in force. Empty if it is in force, or if no token is needed."""


class AdapterReport(Part, frozen=True):
    """One LoRA adapter that has a slot of an engine, because running requests use it."""

    adapter: str
    """Name of the adapter in the engine's flags."""
    tenants: tuple[Name, ...]
    """Tenants of the zones whose requests use the adapter."""


class EncoderUseReport(Part, frozen=True):
    """The part of an engine's encoder cache that one zone's running requests use."""

    tenant: Name
    embeddings: Count


class TierReport(Part, frozen=True):
    """One tier of an engine."""

    tier: TierText
    """The tier's name, as in :class:`ZoneTierReport`."""
    capacity_bytes: Count
    """Capacity in bytes, as a multiple of the chunk size; 0 for a shared tier, because no engine owns a part of it."""
    held_bytes: Count
    """Number of bytes held by zones, and by requests that began before any zone was declared."""
    chunk_bytes: Count
    """Size of a chunk, the unit of transfer, in bytes."""
    problem: str = ""
    """Reason why the tier can't store or load chunks now. Empty if the tier works."""

    @property
    def is_full(self) -> bool:
        """Whether the tier has no room for another chunk without an eviction.

        A tier in use is full most of the time.
        """
        return self.held_bytes + self.chunk_bytes > self.capacity_bytes


class EngineReport(Part, frozen=True, kw_only=True):
    """An immutable snapshot of one engine core: its config, its zones and their loans.

    All numbers of one zone are from the same moment, and so are all numbers of the engine. These moments may be some
    milliseconds apart, so the blocks of all zones and ``free_blocks`` need not add up to the capacity. ``lent``
    and ``borrowed`` are sums of the reported loans.
    """

    version: Literal[1] = REPORT_VERSION
    engine_version: Name
    """Version of vLLM."""
    pod: Name = ""
    capacity_blocks: Blocks
    """Number of blocks that requests can use, without vLLM's null block."""
    block_size_tokens: Blocks
    free_blocks: Blocks
    seats: Count = 0
    """Maximum number of running requests."""
    adapter_slots: Count = 0
    """Maximum number of LoRA adapters in use at once, or 0 if the engine has no adapters."""
    adapters: tuple[AdapterReport, ...] = ()
    """Adapters that have a slot now."""
    encoder_embeddings: Count = 0
    """Capacity of the encoder cache in embeddings, or 0 if the model has no encoder."""
    encoder_use: tuple[EncoderUseReport, ...] = ()
    """Part of the encoder cache that each zone uses."""
    config: ConfigStatus
    salt_key: SaltKeyStatus
    identity: IdentityReport
    admin_port: AdminPortStatus
    api_servers: Annotated[tuple[ApiServerReport, ...], Meta(max_length=MAX_API_SERVERS)] | None = None
    """API server processes, or None if no process has reported yet."""
    missing_api_servers: Count = 0
    """Number of started API server processes that have not reported their state for a minute."""
    boot_id: Name = ""
    """Random id, which changes each time the engine core starts."""
    pod_uid: Name = ""
    """UID of the engine's pod, from the environment variable ``POD_UID``. Empty if the variable is not set."""
    tiers: Annotated[tuple[TierReport, ...], Meta(max_length=MAX_TIERS)] = ()
    """Tiers of the engine, fastest first."""
    zones: tuple[ZoneReport, ...] = ()
    loans: tuple[LoanReport, ...] = ()
    started_unix_time: UnixTime = 0.0
    published_unix_time: UnixTime


_DECODER = msgspec.json.Decoder(EngineReport)
_ENCODED_AT_ONCE: Final = 500
"""Number of zones or loans that are encoded in one call, which takes less than a millisecond."""


def dump_report(report: EngineReport) -> bytes:
    """Returns the report as JSON. Encodes the report in several calls, because each call blocks all Python threads."""
    zones, loans = _encoded(report.zones), _encoded(report.loans)
    return msgspec.json.encode(msgspec.structs.replace(report, zones=zones, loans=loans))


def _encoded(parts: Sequence[Part]) -> msgspec.Raw:
    """Returns the parts as a JSON array."""
    starts = range(0, len(parts), _ENCODED_AT_ONCE)
    arrays = [msgspec.json.encode(parts[start : start + _ENCODED_AT_ONCE]) for start in starts]
    return msgspec.Raw(b"[" + b",".join(array[1:-1] for array in arrays) + b"]")


def parse_report(text: str | bytes) -> EngineReport:
    """Parse an engine's report.

    Raises:
        ValueError: the text is not a report, its version is unknown, or a value is out of bounds.
    """
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from None

"""The engine's report on its config and on each zone's blocks, which the operator reads from the admin port.

Any pod that matches a pool's labels may have sent a report. Therefore, all names and numbers have bounds, so that the
operator can write any accepted report into a status.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from tenantzone_contract.quantity import MAX_COUNT

REPORT_VERSION: Final = 1

REPORT_PATH = "/report"
HEALTH_PATH = "/healthz"
METRICS_PATH = "/metrics"

DEFAULT_ADMIN_PORT = 9464

ZoneState = Literal["Active", "Idle", "Evicted"]
"""State of a zone on an engine.

Active: a request is waiting or running. Idle: the zone has no requests. Evicted: the zone is idle, and all its blocks
are evicted, but the zone still exists.
"""

EvictionReason = Literal[
    "quiet",
    "reclaim",
    "own",
    "relief",
    "limit",
    "watermark",
    "due",
    "idle",
    "ttl",
    "no_store",
    "purge",
    "removed",
    "reset",
]
"""Reason why a cached block was evicted.

quiet: another zone needed the block, and the owner was past its idle window. reclaim: a zone within its reservation
needed the block, which was surplus of its owner. own: the owner itself needed the block. relief: surplus of an active
zone, for another zone's request that was denied blocks or is growing. limit: the zone would have exceeded its limit.
watermark: the engine ran low on free blocks. due: the block was on a loan that had expired. idle: the zone had no
requests for the configured time. ttl: the block was unused for the zone's TTL. no_store: the zone no longer caches
blocks. purge: the zone was purged. removed: the zone was removed from the config. reset: the prefix cache was reset.
"""

LatencyReason = Literal[
    "Met", "NoTraffic", "Warming", "OwnLoad", "OwnPrompts", "ModelTooSlow", "Neighbours", "Blocks", "Seats"
]
"""State of a zone's latency target, or the reason why the target is missed.

Met: the time was at most 1.15 times the target. NoTraffic: no request was served in the last minute. With all other
reasons, the target is missed. Warming: too few steps were measured to predict step times. OwnLoad: the zone's own
generating requests take longer than the target. OwnPrompts: the zone's own prompts make steps longer than the target
allows. ModelTooSlow: a single request takes longer than the target. Neighbours: requests of other zones were computed
in the same steps. Blocks, Seats: requests waited for blocks or seats before their first token.
"""

WaitReason = Literal[
    "limit", "reserved", "in_use", "seats", "seat_limit", "tokens", "adapter", "encoder", "grammar", "load"
]
"""Reason why a zone's next request waits.

limit: the zone has reached its limit of blocks. reserved: blocks are free or cached, but reserved for other zones.
in_use: other requests use the blocks. seats: the engine runs its maximum number of requests. seat_limit: the zone runs
its maximum number of requests. tokens: the zone's share of the steps is used up, or another zone's latency target needs
the tokens. adapter: requests for other LoRA adapters use all adapter slots, or another zone gets the next slot.
encoder: encodings of other requests' media fill the encoder cache, or its free room is kept for another zone. grammar:
the request's grammar is not compiled yet. load: the engine looks up the prompt's blocks in a tier, or copies blocks
from a tier. For grammar and load, all waiting requests of the zone wait.
"""

MAX_BLOCKS: Final = 2**31 - 1
"""Maximum number of blocks of one engine."""

MAX_SECONDS: Final = 1e6
"""Maximum reported latency in seconds. Longer times, for example after a clock was set, are reported as this value."""

MAX_TIERS: Final = 8
"""Maximum number of tiers of one engine."""

MAX_API_SERVERS: Final = 1024
"""Maximum number of API server processes of one engine."""

MAX_LAGS: Final = 16
"""Maximum number of differences between one API server process and its engine core."""

Blocks = Annotated[int, Meta(ge=0, le=MAX_BLOCKS)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
ByteTotal = Annotated[int, Meta(ge=0)]
"""Number of bytes since a zone was added, which may exceed `MAX_COUNT` after weeks of transfers."""
Integral = Annotated[float, Meta(ge=0)]
Name = Annotated[str, Meta(max_length=253)]
"""A name, or a word of an enumeration. A newer engine may report words that this enumeration does not have."""
TierText = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")]
UnixTime = Annotated[float, Meta(ge=-1e12, le=1e12)]
_Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]


class _Part(Struct, frozen=True, rename="camel", gc=False):
    """A part of the report. Unknown fields are ignored, so that an older operator can read a newer engine's report.

    The bounds are checked when a report is parsed, not when an engine makes it.
    """


class PurgeReport(_Part, frozen=True):
    """The last purge of a zone on an engine. Amounts are in KV-cache blocks."""

    id: Name
    evicted: Count = 0
    """Number of cached blocks that were evicted."""
    withdrawn: Count = 0
    """Number of blocks that running requests used. Later requests can't hit these blocks, which stay until released."""


class TargetReport(_Part, frozen=True):
    """One latency target of a zone, and the actual latency of its requests."""

    target_seconds: Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
    actual_seconds: _Seconds | None = None
    """99th percentile over the last minute, or None if no request was served."""
    met: bool | None = None
    """Whether the latency was at most 1.15 times the target, or None if no request was served."""
    reason: Name = "NoTraffic"
    """A :data:`LatencyReason`. A newer engine may report other reasons."""


class LatencyReport(_Part, frozen=True):
    """The latency targets of a zone."""

    token_time: TargetReport | None = None
    first_token: TargetReport | None = None


class TierEffectReport(_Part, frozen=True):
    """A zone's use of a tier in the last window, by the rule of :mod:`~tenantzone_contract.reports.tier_effect`."""

    offered_bytes: Count
    """Number of bytes that were stored, or were not stored only because of the zone's admission terms."""
    loaded_bytes: Count
    ineffective: bool = False
    """Whether the zone loads too few of the bytes that it offers to the tier."""


class ZoneTierReport(_Part, frozen=True):
    """One zone in one tier of an engine. Counters count since the zone was added. A chunk is the unit of transfer."""

    tier: TierText
    """An :data:`~tenantzone_contract.zone_config.tiers.AnyTierName`. A newer engine may report other tiers."""
    reserved_bytes: Count
    limit_bytes: Count
    held_bytes: Count
    awaited_bytes: Count = 0
    """Number of bytes that the TenantZone reserves but that do not fit. If above 0, ``reserved_bytes`` is 0."""
    hits: Count = 0
    """Number of chunks that were found and whose load began."""
    evictions: Count = 0
    """Number of evicted chunks, for any reason."""
    writes_refused: Count = 0
    """Number of chunks that were not stored."""
    writes_refused_within_reservation: Count = 0
    """Number of chunks that were not stored although they were within the zone's reservation."""
    stored_bytes: ByteTotal = 0
    """Number of bytes that were stored."""
    loaded_bytes: ByteTotal = 0
    """Number of bytes that were found and whose load began."""
    not_admitted_bytes: ByteTotal = 0
    """Number of bytes that were not stored because of the zone's admission terms."""
    effect: TierEffectReport | None = None
    """Last evaluation of the tier's effect, or None if there was none."""
    corrupt: Count = 0
    """Number of chunks that were not used, because they were changed, truncated, swapped or of another zone."""
    byte_seconds: Integral = 0.0
    """Integral of held bytes over time, in byte-seconds."""


class ZoneReport(_Part, frozen=True):
    """One zone on one engine. Amounts are in KV-cache blocks unless the name has another unit."""

    name: Name
    tenant: Name
    generation: Count
    """Generation of the TenantZone that is enforced now."""
    state: Name
    """A :data:`ZoneState`. A newer engine may report other states."""
    reserved: Blocks
    limit: Blocks
    in_use: Blocks
    """Number of blocks that requests use."""
    cached: Blocks
    """Number of cached blocks that no request uses."""
    waiting_requests: Count = 0
    running_requests: Count = 0
    prefix_query_tokens: Count = 0
    prefix_hit_tokens: Count = 0
    prompt_tokens: Count = 0
    generation_tokens: Count = 0
    computed_tokens: Count = 0
    """Number of prompt tokens and generated tokens that were computed, each counted once."""
    computed_first_tokens: Count = 0
    """Number of tokens computed for the first time, without rejected drafts."""
    recomputed_tokens: Count = 0
    """Number of tokens computed again after preemptions."""
    withheld_tokens: Count = 0
    """Number of step tokens that the zone's requests could have used, but that were kept for other zones."""
    evictions: dict[Name, Count] = {}
    """Evicted blocks by :data:`EvictionReason`. A newer engine may report other reasons."""
    preemptions: Count = 0
    violations: Count = 0
    """Number of requests that the engine failed because they were about to use another zone's block (a defect)."""
    waits_for: Name | None = None
    """A :data:`WaitReason`, the reason why the zone's next request was not admitted in the last step.

    None if the request was admitted, or if no request waits. A newer engine may report other reasons.
    """
    auto_registered: bool = False
    """Whether the zone was registered for a tenant without a TenantZone. If so, ``generation`` is 0."""
    level: Name = ""
    """Tenant's level of ``unknownTenants.levels``, or empty without a level."""
    awaited_reservation: Blocks = 0
    """Number of blocks that the TenantZone or level reserves but that do not fit. If above 0, ``reserved`` is 0."""
    reserved_seats: Count = 0
    """Number of requests that can run at once regardless of other zones."""
    latency: LatencyReport | None = None
    """State of the zone's latency targets. None if the zone has no targets, or if nothing was measured yet."""
    awaited_seats: Count = 0
    """Number of seats that the TenantZone reserves explicitly but that the engine does not have."""
    lent: Blocks = 0
    """Number of blocks of the zone's reservation that other zones use now."""
    borrowed: Blocks = 0
    """Number of blocks of other zones' reservations that the zone holds now."""
    block_seconds: Integral = 0.0
    """Integral of held blocks over time since the engine started, in block-seconds."""
    purge: PurgeReport | None = None
    """Last purge, or None if there was none."""
    scrubbed_blocks: Count = 0
    """Number of blocks that were zeroed, since the engine started, because they moved to another tenant."""
    unscrubbed_blocks: Blocks = 0
    """Number of free blocks with data of the zone, which are zeroed before another tenant gets them."""
    tiers: Annotated[tuple[ZoneTierReport, ...], Meta(max_length=MAX_TIERS)] = ()
    """Zone's report for each tier of the engine."""

    @property
    def held(self) -> int:
        return self.in_use + self.cached

    @property
    def blocks_evicted(self) -> int:
        """Number of evicted blocks, for any reason."""
        return sum(self.evictions.values())


class Rejection(_Part, frozen=True, kw_only=True):
    """A config that the engine refused. The engine's previous config is still in force."""

    generation: Count | None = None
    """Generation of the refused config, or None if the file is unreadable or untrusted."""
    error: str
    untrusted: bool = False
    """Whether the config is refused because its signature is invalid, or because a newer config was signed."""
    newest_generation: Count | None = None
    """Generation of the pool's newest signed config, if the config is refused because it is older."""
    unix_time: UnixTime = 0.0


class ConfigStatus(_Part, frozen=True):
    """The config in force on an engine, and the newest config if it was refused."""

    applied_generation: Count | None = None
    applied_hash: Name | None = None
    applied_unix_time: UnixTime | None = None
    rejected: Rejection | None = None
    """Rejection of the newest config, or None if it was not refused."""
    demands_signature: bool = False
    """Whether the engine refuses unsigned configs."""


class IdentityReport(_Part, frozen=True, kw_only=True):
    """The method by which an engine's frontend identifies tenants."""

    kind: Name = ""
    """An :data:`~tenantzone_contract.zone_config.identity.IdentityKind`. A newer engine may report other kinds."""
    digest: Name
    """Digest of the active identity settings, from `tenantzone_contract.zone_config.identity.identity_digest`."""
    problem: str = ""
    """Reason why the frontend can't identify any tenant. Empty if the frontend identifies tenants."""
    keys: Name = ""
    """Digest of the API keys that the engine core has read, equal in each process with the same keys.

    Empty without keys. The digest uses a random key that only the engine's processes know. Therefore, the digest
    distinguishes two states of one engine, but can't be used to test guesses of an API key.
    """


Lag = Literal["config", "keys", "salt_key", "silent"]
"""Difference between an API server process and its engine core for 30 seconds or longer.

config: the process enforces another config. keys: the process has other API keys than the engine core reads from the
same folder. salt_key: the process uses another salt key. silent: the process has not reported its state.
"""


class ApiServerReport(_Part, frozen=True):
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


class LoanReport(_Part, frozen=True):
    """Blocks of one zone's reservation that another zone holds. Zones are identified by their tenants."""

    lender: Name
    borrower: Name
    blocks: Blocks
    since_unix_time: UnixTime
    due_unix_time: UnixTime | None = None
    """Time at which the loan is due, or None if the lender may reclaim it when needed."""


class SaltKeyStatus(_Part, frozen=True):
    """The salt key in force on an engine."""

    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{0,64}\Z")] = ""
    """Id (not the content) of the pool's key. Empty if the engine uses a temporary key of its own."""
    error: str = ""
    """Reason why the current key file is not in force. Empty if it is in force, or if no key file is mounted."""


class AdminPortStatus(_Part, frozen=True):
    """Access control of the engine's admin port."""

    open: bool = False
    """Whether the port answers without the pool's token."""
    error: str = ""
    """Reason why the current token file is not in force. Empty if it is in force, or if no token is needed."""


class AdapterReport(_Part, frozen=True):
    """One LoRA adapter that has a slot of an engine, because running requests use it."""

    adapter: str
    """Name of the adapter in the engine's flags."""
    tenants: tuple[Name, ...]
    """Tenants of the zones whose requests use the adapter."""


class EncoderUseReport(_Part, frozen=True):
    """The part of an engine's encoder cache that one zone's running requests use."""

    tenant: Name
    embeddings: Count


class TierReport(_Part, frozen=True):
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


class EngineReport(_Part, frozen=True, kw_only=True):
    """An immutable snapshot of one engine core: its config, its zones and their loans.

    All numbers of a zone are from one moment, and all numbers of the engine are from one moment. These moments may be
    some milliseconds apart, so the blocks of all zones and ``free_blocks`` need not add up to the capacity. ``lent``
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
    """Maximum number of LoRA adapters in use at once, or 0 without adapters."""
    adapters: tuple[AdapterReport, ...] = ()
    """Adapters that have these slots."""
    encoder_embeddings: Count = 0
    """Capacity of the encoder cache in embeddings, or 0 if the model has no encoder."""
    encoder_use: tuple[EncoderUseReport, ...] = ()
    """Part of the encoder cache that each zone uses."""
    config: ConfigStatus
    salt_key: SaltKeyStatus
    identity: IdentityReport
    admin_port: AdminPortStatus
    api_servers: Annotated[tuple[ApiServerReport, ...], Meta(max_length=MAX_API_SERVERS)] | None = None
    """API server processes. None if none has reported yet."""
    missing_api_servers: Count = 0
    """Number of started API server processes that have not reported their state for a minute."""
    boot_id: Name = ""
    """Random id of this start of the engine core."""
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


def _encoded(parts: Sequence[_Part]) -> msgspec.Raw:
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

"""The engine's report of what it applied and what each zone holds, which the operator reads from the admin port."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Final, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tenantzone_contract.identity import IdentityKind

REPORT_VERSION: Final = 1

REPORT_PATH = "/report"
HEALTH_PATH = "/healthz"
METRICS_PATH = "/metrics"

DEFAULT_ADMIN_PORT = 9464

ZoneState = Literal["Active", "Idle", "Evicted"]
"""Active: a request waits or runs. Idle: none does. Evicted: idle and all blocks gone; the binding is kept."""

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
"""Why a cached block was evicted.

quiet: S2, from a zone past its idle window, for another zone. reclaim: S0, surplus taken back by a zone that is within
its reservation. own: S1, the zone's least recently used. relief: surplus of an active zone, for another zone's request
that was denied blocks or grows. limit: held would pass the zone's limit. watermark: the engine ran low on free blocks.
due: they stood on a loan whose time was over. idle: the zone has had no request for long. ttl: nobody used them for as
long as the zone keeps them. no_store: the zone stores nothing any more. purge: somebody had all that the zone
cached go. removed: the zone is gone from the config. reset: the prefix cache was reset.
"""

_OLDER_WORDS: Final[Mapping[EvictionReason, str]] = {
    "reclaim": "recall",
    "relief": "reclaim",
    "watermark": "reclaim",
    "ttl": "idle",
    "no_store": "reset",
    "purge": "reset",
}
"""What an operator of the previous release knows these reasons as."""
EVICTIONS_IN_NEWER_WORDS: Final[Mapping[str, str]] = {"recall": "reclaim", "reclaim": "watermark"}
"""What the reasons of an engine of the previous release are now. Its ``reclaim`` may be relief: it does not say."""

LatencyReason = Literal[
    "Met", "NoTraffic", "Warming", "OwnLoad", "OwnPrompts", "ModelTooSlow", "Neighbours", "Blocks", "Seats"
]
"""What a zone's latency target comes to.

Met, up to 1.15 times itself. NoTraffic: nothing was served in the last minute. Else it is missed. Warming: too few
steps were seen to predict one. OwnLoad: what the zone's own requests generate takes longer. OwnPrompts: the zone's own
prompts make its steps longer than the target allows. ModelTooSlow: one request alone takes longer. Neighbours: others
were computed in the same steps. Blocks, Seats: the first token waited for these.
"""

WaitReason = Literal[
    "limit", "reserved", "in_use", "seats", "seat_limit", "tokens", "adapter", "encoder", "grammar", "load"
]
"""Why a zone's next request waits.

For blocks. limit: its own zone's limit is in use. reserved: the blocks are there, free or cached, and kept for others.
in_use: other requests use them. For a seat. seats: the engine runs as many requests as it can. seat_limit: the zone
runs as many as it may. For tokens. tokens: its share of the steps is used, or another zone's latency target needs them.
For an adapter slot. adapter: requests for other LoRA adapters use all slots, or another zone is to have the next one.
For the encoder. encoder: encodings of other requests' media use its room, or it is kept for another zone. For its own
preparation, as all waiting requests of the zone do. grammar: its grammar is not compiled yet. load: the engine looks in
a tier for blocks of its prompt, or copies blocks from there.
"""

OlderWaitReason = Literal["limit", "reserved", "in_use"]
"""What an operator of the previous release knows: it refuses a report with another word."""

_FOR_BLOCKS: Final[frozenset[str]] = frozenset(get_args(OlderWaitReason))

MAX_COUNT: Final = 2**53 - 1
"""The largest number that every reader of JSON knows exactly."""

MAX_SECONDS: Final = 1e6
"""Of what a zone's requests take. A longer time is told as this one: some clock was set."""

Count = Annotated[int, Field(ge=0)]
TierText = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
MAX_TIERS: Final = 8
"""Of one engine."""
_Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]


class _Model(BaseModel):
    # An older operator must be able to read a newer engine's report: unknown fields are ignored.
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


class PurgeReport(_Model):
    """The last purge of a zone that an engine has carried out, in KV-cache blocks."""

    id: str
    evicted: Count = 0
    """Cached blocks that went."""
    withdrawn: Count = 0
    """Blocks that running requests used: nobody finds them since, and they are free once they are let go."""


class TargetReport(_Model):
    """One latency target of a zone, and what its requests get."""

    target_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)]
    actual_seconds: _Seconds | None = None
    """The 99th percentile of the last minute; None: nothing was served."""
    met: bool | None = None
    """Up to 1.15 times the target; None: nothing was served."""
    reason: Annotated[str, Field(max_length=253)] = "NoTraffic"
    """A :data:`LatencyReason`; a newer engine may have reasons that this code does not know."""


class LatencyReport(_Model):
    """The latency targets that a zone has."""

    token_time: TargetReport | None = None
    first_token: TargetReport | None = None


class TierEffectReport(_Model):
    """What a zone used of a tier in the last window, by :mod:`~tenantzone_contract.tier_effect`."""

    offered_bytes: Count
    """Stored, and not stored because of the zone's terms of admission only."""
    loaded_bytes: Count
    ineffective: bool
    """Whether the tier gives back too little of what the zone offers."""


class ZoneTierReport(_Model):
    """One zone in one tier of an engine; chunks are what the tier moves at once."""

    tier: TierText
    """An :data:`~tenantzone_contract.tiers.AnyTierName`; a newer engine may have tiers that this code does not know."""
    reserved_bytes: Count
    limit_bytes: Count
    held_bytes: Count
    awaited_bytes: Count = 0
    """That its TenantZone reserves and that do not fit; ``reserved_bytes`` is 0 then."""
    hits: Count = 0
    """Chunks that were found and began to be loaded; like all that follows, since the zone came."""
    evictions: Count = 0
    """Chunks, for whatever reason."""
    writes_refused: Count = 0
    """Chunks that were not stored."""
    writes_refused_within_reservation: Count = 0
    """Of these, the ones with which the zone would still have been within its reservation."""
    stored_bytes: Count = 0
    """That were stored."""
    loaded_bytes: Count = 0
    """That were found and began to be loaded."""
    not_admitted_bytes: Count = 0
    """That were not stored because of the zone's terms of admission."""
    effect: TierEffectReport | None = None
    """How the tier was judged last; None: it was not, or its release does not judge."""
    corrupt: Count = 0
    """Chunks that were not what was stored: changed, cut off, swapped or another's. None was used."""
    byte_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Bytes held times seconds."""


class ZoneReport(_Model):
    """One zone on one engine, with amounts in KV-cache blocks unless the name says tokens or requests."""

    name: str
    tenant: str
    generation: int
    """Of the TenantZone that is enforced now."""
    state: ZoneState
    reserved: Count
    limit: Count
    in_use: Count
    """Referenced by a request."""
    cached: Count
    """Kept for its prefix, referenced by nobody."""
    waiting_requests: Count = 0
    running_requests: Count = 0
    prefix_query_tokens: Count = 0
    prefix_hit_tokens: Count = 0
    prompt_tokens: Count = 0
    generation_tokens: Count = 0
    computed_tokens: Count = 0
    """In steps, of prompts and generated, each once."""
    computed_first_tokens: Count = 0
    """Computed in steps for the first time, but for drafts that were rejected."""
    recomputed_tokens: Count = 0
    """Computed in steps although their requests had them before: preemptions had lost them."""
    withheld_tokens: Count = 0
    """That its requests could have had computed in a step and that were kept for others."""
    evictions: dict[str, Count] | None = None
    """Evicted blocks by reason, to be read as ``evicted``; None: the engine is of the previous release."""
    evicted_blocks: dict[str, Count] = {}
    """The same by :func:`in_older_words`: an operator of the previous release refuses reasons unknown to it."""
    preemptions: Count = 0
    violations: Count = 0
    """Requests that were failed because they were about to use a block of another zone: a defect, never normal."""
    wait_reason: OlderWaitReason | None = None
    """``waits_for`` if that is for blocks; else None."""
    waits_for: str | None = None
    """A :data:`WaitReason`: why its next request could not be admitted in the last step; None: it could, none waits, or
    the engine is of the previous release. A newer engine may have reasons that this code does not know."""
    auto_registered: bool = False
    """Made for a tenant without a TenantZone, as the pool says of unknown tenants; ``generation`` is 0 then."""
    level: str = ""
    """Of ``unknownTenants.levels``, the one that the tenant is of; empty: none."""
    awaited_reservation: Count = 0
    """Blocks that its TenantZone or its level reserves and that do not fit now; ``reserved`` is 0 then."""
    reserved_seats: Count = 0
    """Requests that can run at once whatever others do."""
    latency: LatencyReport | None = None
    """What becomes of its latency targets; None: it has none, or nothing was seen yet."""
    awaited_seats: Count = 0
    """What its TenantZone reserves of these by name and of which the engine has too few."""
    lent: Count = 0
    """Blocks of its reservation that others stand on now."""
    borrowed: Count = 0
    """Blocks that it holds on others' reservations now."""
    block_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Blocks held times seconds, since the engine started."""
    purge: PurgeReport | None = None
    """None: there was no purge, or the engine is of the previous release."""
    scrubbed_blocks: Count = 0
    """Blocks that were zeroed because another tenant got them, since the engine started."""
    unscrubbed_blocks: Count = 0
    """Free blocks that still hold data of the zone: each is zeroed before another tenant gets it."""
    tiers: Annotated[tuple[ZoneTierReport, ...], Field(max_length=MAX_TIERS)] = ()
    """One for each tier of the engine; none: the engine has none, or is of the previous release."""

    @property
    def held(self) -> int:
        return self.in_use + self.cached

    @property
    def waiting_for(self) -> str | None:
        """Why its next request waits, whichever release's words the engine uses."""
        return self.waits_for or self.wait_reason

    @property
    def evicted(self) -> Mapping[str, int]:
        """Evicted blocks by :data:`EvictionReason`; a newer engine may have reasons that this code does not know."""
        if self.evictions is not None:
            return self.evictions
        return {EVICTIONS_IN_NEWER_WORDS.get(reason, reason): blocks for reason, blocks in self.evicted_blocks.items()}

    @property
    def blocks_evicted(self) -> int:
        """For whatever reason."""
        return sum(self.evicted.values())


class Rejection(_Model):
    """A config that the engine refused; what it enforced before is still in force."""

    generation: int | None = None
    """None if the file was too broken, or not trusted enough, to read it."""
    error: str
    untrusted: bool = False
    """Whether it is refused because its signature does not hold, or because a newer one was signed."""
    unix_time: float


class ConfigStatus(_Model):
    """Which config is in force on an engine, and which one it refused last."""

    applied_generation: int | None = None
    applied_hash: str | None = None
    applied_unix_time: float | None = None
    rejected: Rejection | None = None
    """The newest file, if it was refused."""
    demands_signature: bool | None = None
    """Whether the engine refuses configs that the operator did not sign; None: it is of the previous release."""


class IdentityReport(_Model):
    """How an engine's frontend knows tenants."""

    kind: IdentityKind
    digest: str
    """Of the declaration that it goes by; see `tenantzone_contract.identity.identity_digest`."""
    problem: str = ""
    """Why it lets nobody in; empty if it does."""
    keys: str = ""
    """The digest of the API keys that the engine core has read, equal in each process that has the same keys; empty:
    there are none, or the engine is of the previous release.

    It is made under a random key that only the engine's processes have and that ends with them: it tells two states of
    one engine apart, and nobody can test guesses of an API key by it.
    """


Lag = Literal["config", "keys", "salt_key", "silent"]
"""In what an API server process has differed from its engine core for 30 seconds or longer.

config: it enforces another config. keys: it knows other API keys than the engine core reads from the same folder.
salt_key: it salts with another key. silent: it has not said what it enforces.
"""


class ApiServerReport(_Model):
    """What one API server process of an engine enforces."""

    process: Count
    """Its process id, in the engine's container."""
    config_generation: int | None = None
    config_hash: str | None = None
    """None: no config is in force there yet."""
    keys: str = ""
    """The digest of the API keys that count, as in :class:`IdentityReport`."""
    salt_key: str = ""
    """As ``SaltKeyStatus.id``."""
    lags: tuple[Annotated[str, Field(max_length=253)], ...] = ()
    """Each a :data:`Lag`; none: it does as the engine core says. A newer engine may have others."""


class LoanReport(_Model):
    """Blocks of one zone's reservation that another zone holds, the zones named by their tenants."""

    lender: str
    borrower: str
    blocks: Count
    since_unix_time: float
    due_unix_time: float | None = None
    """None: when the lender asks for it."""


class SaltKeyStatus(_Model):
    """Which salt key is in force on an engine."""

    id: str = ""
    """Of the pool's key, never the key; empty: the engine has one of its own, which ends with it."""
    error: str = ""
    """Why the key's file as it is now is not in force; empty if it is, or if none is mounted."""


class AdminPortStatus(_Model):
    """Who may read the engine's admin port."""

    open: bool = False
    """Whoever reaches it; else who shows the pool's token."""
    error: str = ""
    """Why the file of tokens as it is now is not in force; empty if it is, or if none is needed."""


class AdapterReport(_Model):
    """One LoRA adapter that has a slot of an engine, because requests run with it."""

    adapter: str
    """By the name that the engine was started with."""
    tenants: tuple[str, ...]
    """Of the zones whose requests these are."""


class EncoderUseReport(_Model):
    """What the running requests of one zone use of an engine's encoder cache."""

    tenant: str
    embeddings: Count


class TierReport(_Model):
    """One tier of an engine."""

    tier: TierText
    """As in :class:`ZoneTierReport`."""
    capacity_bytes: Count
    """Whole chunks only; 0 of a shared tier, which no engine has a part of."""
    held_bytes: Count
    """By zones, and by what came before any zone."""
    chunk_bytes: Count
    """What it moves at once."""
    problem: str = ""
    """What keeps it from storing or loading now; empty: nothing does."""

    @property
    def is_full(self) -> bool:
        """Whether it has no room for another chunk unless one goes. A tier that is used is full most of the time."""
        return self.held_bytes + self.chunk_bytes > self.capacity_bytes


class EngineReport(_Model):
    """An immutable snapshot of one engine core: its config, its zones and their loans.

    What is said of one zone is of one moment, and so is what is said of the engine. Two zones may be of moments some
    milliseconds apart, so that what they hold need not add up with ``free_blocks`` to the capacity. The loans are those
    that ``lent`` and ``borrowed`` are made of.
    """

    version: Literal[1] = REPORT_VERSION
    engine_version: str
    """vLLM's."""
    pod: str = ""
    capacity_blocks: Count
    """Blocks that requests can use (vLLM's null block is not among them)."""
    block_size_tokens: Count
    free_blocks: Count
    seats: Count = 0
    """Requests that can run at once; 0: the engine is of the previous release, and does not say."""
    adapter_slots: Count = 0
    """LoRA adapters with which requests can run at once; 0: it takes none, or its release does not report them."""
    adapters: tuple[AdapterReport, ...] = ()
    """Those that have these slots."""
    encoder_embeddings: Count = 0
    """Embeddings that the encoder cache holds; 0: the model has no encoder, or the release does not report them."""
    encoder_use: tuple[EncoderUseReport, ...] = ()
    """Of the zones that use some."""
    config: ConfigStatus
    salt_key: SaltKeyStatus | None = None
    """None: the engine is of the previous release, with a key of its own."""
    identity: IdentityReport | None = None
    """None: the engine is of the previous release, and knows API keys only."""
    admin_port: AdminPortStatus | None = None
    """None: the engine is of the previous release, and its port is open."""
    api_servers: tuple[ApiServerReport, ...] | None = None
    """Its API server processes; None: none has said what it enforces, or the engine is of the previous release."""
    missing_api_servers: Count = 0
    """API server processes that it was started with and that have not said for a minute what they enforce."""
    boot_id: str = ""
    """Random, of this start of the engine core; empty: the engine is of the previous release."""
    pod_uid: str = ""
    """Of its pod, from the variable ``POD_UID``; empty: it is not set."""
    tiers: Annotated[tuple[TierReport, ...], Field(max_length=MAX_TIERS)] = ()
    """The fastest first; none: it has none, or is of the previous release."""
    zones: tuple[ZoneReport, ...] = ()
    loans: tuple[LoanReport, ...] = ()
    started_unix_time: float
    published_unix_time: float


def for_blocks(reason: WaitReason | None) -> OlderWaitReason | None:
    """The reason, if it is blocks that are waited for."""
    return cast(OlderWaitReason, reason) if reason in _FOR_BLOCKS else None


def in_older_words(evicted: Mapping[EvictionReason, int]) -> dict[str, int]:
    """Evicted blocks by reason, in the words that the previous release uses."""
    older: Counter[str] = Counter()
    for reason, blocks in evicted.items():
        older[_OLDER_WORDS.get(reason, reason)] += blocks
    return dict(older)


def dump_report(report: EngineReport) -> bytes:
    """The report as JSON, made zone by zone: one call that takes long stops all threads of Python."""
    head = report.model_dump_json(by_alias=True, exclude={"zones"}).removesuffix("}")
    zones = ",".join(zone.model_dump_json(by_alias=True) for zone in report.zones)
    return f'{head},"zones":[{zones}]}}'.encode()


def parse_report(text: str | bytes) -> EngineReport:
    """Read an engine's report from its JSON.

    Raises:
        ValueError: it is not one, or it is of a version that this code does not know.
    """
    return EngineReport.model_validate_json(text)

"""The engine's report on its config and on what each zone holds; the operator reads it from the admin port."""

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
"""Active: a request waits or runs. Idle: none does. Evicted: idle, and all blocks are gone; the binding is kept."""

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

quiet: S2, from a zone past its idle window, for another zone. reclaim: S0, surplus reclaimed by a zone within its
reservation. own: S1, the zone's least recently used. relief: surplus of an active zone, for another zone's request that
was denied blocks or grows. limit: the zone would have exceeded its limit. watermark: the engine ran low on free blocks.
due: the block was on a loan whose time was over. idle: the zone has had no request for long. ttl: the block was unused
for the zone's ttl. no_store: the zone does not store blocks any longer. purge: a purge of the zone was requested.
removed: the zone is gone from the config. reset: the prefix cache was reset.
"""

_OLDER_WORDS: Final[Mapping[EvictionReason, str]] = {
    "reclaim": "recall",
    "relief": "reclaim",
    "watermark": "reclaim",
    "ttl": "idle",
    "no_store": "reset",
    "purge": "reset",
}
"""The previous release's names of reasons, for an operator of that release."""
EVICTIONS_IN_NEWER_WORDS: Final[Mapping[str, str]] = {"recall": "reclaim", "reclaim": "watermark"}
"""The current names of the reasons of an engine of the previous release. Its ``reclaim`` may also be relief."""

LatencyReason = Literal[
    "Met", "NoTraffic", "Warming", "OwnLoad", "OwnPrompts", "ModelTooSlow", "Neighbours", "Blocks", "Seats"
]
"""The state of a zone's latency target.

Met: at most 1.15 times the target. NoTraffic: no request was served in the last minute. All others mean that the target
is missed. Warming: too few steps were seen to predict one. OwnLoad: generating for the zone's own requests takes
longer. OwnPrompts: the zone's own prompts make its steps longer than the target allows. ModelTooSlow: one request alone
takes longer. Neighbours: other zones were computed in the same steps. Blocks, Seats: the first token waited for these.
"""

WaitReason = Literal[
    "limit", "reserved", "in_use", "seats", "seat_limit", "tokens", "adapter", "encoder", "grammar", "load"
]
"""Why a zone's next request waits.

For blocks. limit: its own zone's limit is in use. reserved: there are blocks, free or cached, but they are kept for
other zones. in_use: other requests use them. For a seat. seats: the engine runs as many requests as it can. seat_limit:
the zone runs as many as it may. For tokens. tokens: its share of the steps is used, or another zone's latency target
needs them. For an adapter slot. adapter: requests for other LoRA adapters use all slots, or another zone gets the next
one. For the encoder. encoder: encodings of other requests' media use its room, or it is kept for another zone. For its
own preparation, like all waiting requests of the zone. grammar: its grammar is not compiled yet. load: the engine looks
for blocks of its prompt in a tier, or copies blocks from there.
"""

OlderWaitReason = Literal["limit", "reserved", "in_use"]
"""The reasons that an operator of the previous release knows: it refuses a report with any other."""

_FOR_BLOCKS: Final[frozenset[str]] = frozenset(get_args(OlderWaitReason))

MAX_COUNT: Final = 2**53 - 1
"""The largest number that every reader of JSON knows exactly."""

MAX_SECONDS: Final = 1e6
"""The most seconds that a zone's requests take. A longer time is reported as this one: some clock was set."""

Count = Annotated[int, Field(ge=0)]
TierText = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
MAX_TIERS: Final = 8
"""The most tiers of one engine."""
_Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]


class _Model(BaseModel):
    # An older operator must be able to read a newer engine's report: unknown fields are ignored.
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


class PurgeReport(_Model):
    """The last purge of a zone that an engine has carried out, in KV-cache blocks."""

    id: str
    evicted: Count = 0
    """The cached blocks that were evicted."""
    withdrawn: Count = 0
    """The blocks that running requests used: no later request finds them, and they become free when released."""


class TargetReport(_Model):
    """One latency target of a zone, and the time that its requests get."""

    target_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)]
    actual_seconds: _Seconds | None = None
    """The 99th percentile of the last minute; None if no request was served."""
    met: bool | None = None
    """Whether the time was at most 1.15 times the target; None if no request was served."""
    reason: Annotated[str, Field(max_length=253)] = "NoTraffic"
    """A :data:`LatencyReason`; a newer engine may have reasons that this code does not know."""


class LatencyReport(_Model):
    """The latency targets of a zone."""

    token_time: TargetReport | None = None
    first_token: TargetReport | None = None


class TierEffectReport(_Model):
    """How a zone used a tier in the last window, by :mod:`~tenantzone_contract.tier_effect`."""

    offered_bytes: Count
    """The bytes that were stored, or not stored only because of the zone's admission terms."""
    loaded_bytes: Count
    ineffective: bool
    """Whether the zone loads too little of what it offers to the tier."""


class ZoneTierReport(_Model):
    """One zone in one tier of an engine; a chunk is what the tier moves at once."""

    tier: TierText
    """An :data:`~tenantzone_contract.tiers.AnyTierName`; a newer engine may have tiers that this code does not know."""
    reserved_bytes: Count
    limit_bytes: Count
    held_bytes: Count
    awaited_bytes: Count = 0
    """The bytes that the TenantZone reserves and that do not fit; ``reserved_bytes`` is then 0."""
    hits: Count = 0
    """The chunks that were found and began to load; like all that follows, since the zone was added."""
    evictions: Count = 0
    """The evicted chunks, for any reason."""
    writes_refused: Count = 0
    """The chunks that were not stored."""
    writes_refused_within_reservation: Count = 0
    """The refused chunks with which the zone would still have been within its reservation."""
    stored_bytes: Count = 0
    """The bytes that were stored."""
    loaded_bytes: Count = 0
    """The bytes that were found and began to load."""
    not_admitted_bytes: Count = 0
    """The bytes that were not stored because of the zone's admission terms."""
    effect: TierEffectReport | None = None
    """The last judgement of the tier; None if there was none, or if the release does not judge."""
    corrupt: Count = 0
    """The chunks that differed from what was stored: changed, cut off, swapped or another zone's. None was used."""
    byte_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Bytes held times seconds."""


class ZoneReport(_Model):
    """One zone on one engine, with amounts in KV-cache blocks unless the name says tokens or requests."""

    name: str
    tenant: str
    generation: int
    """The generation of the TenantZone that is enforced now."""
    state: ZoneState
    reserved: Count
    limit: Count
    in_use: Count
    """The blocks that a request refers to."""
    cached: Count
    """The blocks kept for their prefix that no request refers to."""
    waiting_requests: Count = 0
    running_requests: Count = 0
    prefix_query_tokens: Count = 0
    prefix_hit_tokens: Count = 0
    prompt_tokens: Count = 0
    generation_tokens: Count = 0
    computed_tokens: Count = 0
    """The tokens computed in steps, of prompts and generated, each counted once."""
    computed_first_tokens: Count = 0
    """The tokens computed in steps for the first time, without rejected drafts."""
    recomputed_tokens: Count = 0
    """The tokens computed in steps again because preemptions had lost them."""
    withheld_tokens: Count = 0
    """The tokens that its requests could have had computed in a step and that were kept for other zones."""
    evictions: dict[str, Count] | None = None
    """The evicted blocks by reason, to be read through ``evicted``; None from an engine of the previous release."""
    evicted_blocks: dict[str, Count] = {}
    """The same by :func:`in_older_words`: an operator of the previous release refuses reasons unknown to it."""
    preemptions: Count = 0
    violations: Count = 0
    """The requests that were failed because they were about to use a block of another zone: a defect, never normal."""
    wait_reason: OlderWaitReason | None = None
    """``waits_for`` if that is for blocks; else None."""
    waits_for: str | None = None
    """A :data:`WaitReason`: why its next request could not be admitted in the last step.

    None if it could, if none waits, or from an engine of the previous release. A newer engine may have reasons that
    this code does not know.
    """
    auto_registered: bool = False
    """Whether the zone was registered for a tenant without a TenantZone; ``generation`` is then 0."""
    level: str = ""
    """The tenant's level of ``unknownTenants.levels``; empty for none."""
    awaited_reservation: Count = 0
    """The blocks that its TenantZone or its level reserves and that do not fit now; ``reserved`` is then 0."""
    reserved_seats: Count = 0
    """The number of requests that can run at once regardless of other zones."""
    latency: LatencyReport | None = None
    """The state of its latency targets; None if it has none, or if nothing was seen yet."""
    awaited_seats: Count = 0
    """The seats that its TenantZone reserves explicitly and that the engine lacks."""
    lent: Count = 0
    """The blocks of its reservation that other zones use now."""
    borrowed: Count = 0
    """The blocks that it holds on other zones' reservations now."""
    block_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Blocks held times seconds, since the engine started."""
    purge: PurgeReport | None = None
    """The last purge; None if there was none, or from an engine of the previous release."""
    scrubbed_blocks: Count = 0
    """The blocks that were zeroed because another tenant got them, since the engine started."""
    unscrubbed_blocks: Count = 0
    """The free blocks that still hold data of the zone: each is zeroed before another tenant gets it."""
    tiers: Annotated[tuple[ZoneTierReport, ...], Field(max_length=MAX_TIERS)] = ()
    """The zone in each tier of the engine; empty without tiers, or from an engine of the previous release."""

    @property
    def held(self) -> int:
        return self.in_use + self.cached

    @property
    def waiting_for(self) -> str | None:
        """Why its next request waits, in the field of either release."""
        return self.waits_for or self.wait_reason

    @property
    def evicted(self) -> Mapping[str, int]:
        """Evicted blocks by :data:`EvictionReason`; a newer engine may have reasons that this code does not know."""
        if self.evictions is not None:
            return self.evictions
        return {EVICTIONS_IN_NEWER_WORDS.get(reason, reason): blocks for reason, blocks in self.evicted_blocks.items()}

    @property
    def blocks_evicted(self) -> int:
        """The number of evicted blocks, for any reason."""
        return sum(self.evicted.values())


class Rejection(_Model):
    """A config that the engine refused; its previous config is still in force."""

    generation: int | None = None
    """The generation; None if the file was too broken, or not trusted enough, to read it."""
    error: str
    untrusted: bool = False
    """Whether the config is refused because its signature is invalid, or because a newer one was signed."""
    newest_generation: int | None = None
    """The generation of the newest signed config of the pool, if this one is refused because it is older."""
    unix_time: float


class ConfigStatus(_Model):
    """The config in force on an engine, and the one that it refused last."""

    applied_generation: int | None = None
    applied_hash: str | None = None
    applied_unix_time: float | None = None
    rejected: Rejection | None = None
    """The newest file, if it was refused."""
    demands_signature: bool | None = None
    """Whether the engine refuses configs that the operator did not sign; None from the previous release."""


class IdentityReport(_Model):
    """How an engine's frontend identifies tenants."""

    kind: IdentityKind
    digest: str
    """The digest of the declaration that it applies; see `tenantzone_contract.identity.identity_digest`."""
    problem: str = ""
    """Why it serves no tenant; empty if it does."""
    keys: str = ""
    """The digest of the API keys that the engine core has read, equal in each process with the same keys.

    It is empty if there are no keys, or from an engine of the previous release. It is made with a random key that only
    the engine's processes have and that ends with them: it distinguishes two states of one engine, but cannot be used
    to test guesses of an API key.
    """


Lag = Literal["config", "keys", "salt_key", "silent"]
"""How an API server process has differed from its engine core for 30 seconds or longer.

config: it enforces another config. keys: it knows other API keys than the engine core reads from the same folder.
salt_key: it salts with another key. silent: it has not reported what it enforces.
"""


class ApiServerReport(_Model):
    """What one API server process of an engine enforces."""

    process: Count
    """Its process id, in the engine's container."""
    config_generation: int | None = None
    config_hash: str | None = None
    """The hash of the config in force; None if none is in force there yet."""
    keys: str = ""
    """The digest of the API keys in force, as in :class:`IdentityReport`."""
    salt_key: str = ""
    """The id of the salt key, as ``SaltKeyStatus.id``."""
    lags: tuple[Annotated[str, Field(max_length=253)], ...] = ()
    """Each a :data:`Lag`; empty if it agrees with the engine core. A newer engine may have others."""


class LoanReport(_Model):
    """Blocks of one zone's reservation that another zone holds; the zones are named by their tenants."""

    lender: str
    borrower: str
    blocks: Count
    since_unix_time: float
    due_unix_time: float | None = None
    """When the loan is due; None if the lender may reclaim it when needed."""


class SaltKeyStatus(_Model):
    """The salt key in force on an engine."""

    id: str = ""
    """The id of the pool's key, never the key; empty if the engine has a key of its own, which ends with it."""
    error: str = ""
    """Why the current key file is not in force; empty if it is, or if none is mounted."""


class AdminPortStatus(_Model):
    """Who may read the engine's admin port."""

    open: bool = False
    """Whether the port answers without the pool's token."""
    error: str = ""
    """Why the current token file is not in force; empty if it is, or if none is needed."""


class AdapterReport(_Model):
    """One LoRA adapter that has a slot of an engine, because requests run with it."""

    adapter: str
    """The name of the adapter that the engine was started with."""
    tenants: tuple[str, ...]
    """The tenants of the zones whose requests use it."""


class EncoderUseReport(_Model):
    """What the running requests of one zone use of an engine's encoder cache."""

    tenant: str
    embeddings: Count


class TierReport(_Model):
    """One tier of an engine."""

    tier: TierText
    """The tier's name, as in :class:`ZoneTierReport`."""
    capacity_bytes: Count
    """The capacity in whole chunks; 0 for a shared tier, which no engine has a part of."""
    held_bytes: Count
    """The bytes held by zones, and from before any zone."""
    chunk_bytes: Count
    """The bytes that the tier moves at once."""
    problem: str = ""
    """Why the tier can't store or load now; empty if it can."""

    @property
    def is_full(self) -> bool:
        """Whether the tier has no room for another chunk without an eviction.

        A tier in use is full most of the time.
        """
        return self.held_bytes + self.chunk_bytes > self.capacity_bytes


class EngineReport(_Model):
    """An immutable snapshot of one engine core: its config, its zones and their loans.

    The numbers of one zone are from one moment, and so are those of the engine. Two zones may be from moments some
    milliseconds apart, so their blocks and ``free_blocks`` need not add up to the capacity. The loans are those that
    ``lent`` and ``borrowed`` sum.
    """

    version: Literal[1] = REPORT_VERSION
    engine_version: str
    """vLLM's version."""
    pod: str = ""
    capacity_blocks: Count
    """The blocks that requests can use, without vLLM's null block."""
    block_size_tokens: Count
    free_blocks: Count
    seats: Count = 0
    """The number of requests that can run at once; 0 from an engine of the previous release."""
    adapter_slots: Count = 0
    """The number of LoRA adapters that requests can run with at once; 0 if none, or if not reported."""
    adapters: tuple[AdapterReport, ...] = ()
    """The adapters that have these slots."""
    encoder_embeddings: Count = 0
    """The embeddings that the encoder cache holds; 0 if the model has no encoder, or the release does not report it."""
    encoder_use: tuple[EncoderUseReport, ...] = ()
    """The zones that use some of it."""
    config: ConfigStatus
    salt_key: SaltKeyStatus | None = None
    """None from an engine of the previous release, with a key of its own."""
    identity: IdentityReport | None = None
    """None from an engine of the previous release, which knows API keys only."""
    admin_port: AdminPortStatus | None = None
    """None from an engine of the previous release, whose port is open."""
    api_servers: tuple[ApiServerReport, ...] | None = None
    """Its API server processes; None if none has reported yet, or from an engine of the previous release."""
    missing_api_servers: Count = 0
    """The started API server processes that have not reported for a minute what they enforce."""
    boot_id: str = ""
    """A random id of this start of the engine core; empty from an engine of the previous release."""
    pod_uid: str = ""
    """The uid of its pod, from the variable ``POD_UID``; empty if it is not set."""
    tiers: Annotated[tuple[TierReport, ...], Field(max_length=MAX_TIERS)] = ()
    """The tiers, the fastest first; empty if it has none, or from an engine of the previous release."""
    zones: tuple[ZoneReport, ...] = ()
    loans: tuple[LoanReport, ...] = ()
    started_unix_time: float
    published_unix_time: float


def for_blocks(reason: WaitReason | None) -> OlderWaitReason | None:
    """Returns the reason if the request waits for blocks; else None."""
    return cast(OlderWaitReason, reason) if reason in _FOR_BLOCKS else None


def in_older_words(evicted: Mapping[EvictionReason, int]) -> dict[str, int]:
    """Returns the evicted blocks by reason, in the names of the previous release."""
    older: Counter[str] = Counter()
    for reason, blocks in evicted.items():
        older[_OLDER_WORDS.get(reason, reason)] += blocks
    return dict(older)


def dump_report(report: EngineReport) -> bytes:
    """Returns the report as JSON, made zone by zone: one long call would stop all Python threads."""
    head = report.model_dump_json(by_alias=True, exclude={"zones"}).removesuffix("}")
    zones = ",".join(zone.model_dump_json(by_alias=True) for zone in report.zones)
    return f'{head},"zones":[{zones}]}}'.encode()


def parse_report(text: str | bytes) -> EngineReport:
    """Read an engine's report from its JSON.

    Raises:
        ValueError: it is not a report, or its version is unknown.
    """
    return EngineReport.model_validate_json(text)

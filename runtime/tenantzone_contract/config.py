"""The runtime config: one complete, self-checking snapshot of a pool and its zones.

The operator writes it into the pool's ConfigMap under ``CONFIG_KEY``; kubelet projects it into each engine pod; the
engine and its front door read it (`tenantzone_contract.packing`). A snapshot is applied whole or not at all.
"""

import json
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from tenantzone_contract.identity import IdentityConfig
from tenantzone_contract.share import BlockShare, percentage
from tenantzone_contract.user_header import READ_BY_OTHERS

SCHEMA_VERSION: Final = 1
"""Of a snapshot's text."""

NEWEST_SCHEMA_VERSION: Final = 2
"""Of the forms in which it is stored; see `tenantzone_contract.packing`."""

MAX_GENERATION: Final = 2**52
"""No pool changes so often. What is not below it was written by somebody else, and would soon be no number of JSON."""

MAX_ZONES: Final = 50_000
"""Of one config, whatever they can be compressed to: their reader has all of them in memory."""

MAX_LEVELS: Final = 64
MAX_TENANTS_OF_A_LEVEL: Final = 64
"""As in the CRD. Who reads a config that somebody else wrote must not be made to read on for ever."""

CONFIG_KEY: Final = "config.json"
"""The ConfigMap's key, and so the name of the file in the engine's config folder."""

CONFIG_HASH_ANNOTATION = "tenantzone.io/config-hash"
"""Set on an engine pod after the ConfigMap has changed: kubelet then syncs that pod's volumes at once."""


class ConfigError(ValueError):
    """A config that can't be used; the message names the field and says what to change."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


def canonical(value: Any) -> str:
    """A value as JSON that is the same for the same value: ASCII, on one line."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _without_unset(model: BaseModel, dumped: dict[str, Any], *fields: str) -> dict[str, Any]:
    """A dumped model without those of ``fields`` that say nothing, which an engine of an older release would refuse.

    That is their default and not what is empty: a 0 may say a lot.
    """
    unset = {name for name in fields if getattr(model, name) == type(model).model_fields[name].default}
    left_out = unset | {to_camel(name) for name in unset}
    return {name: value for name, value in dumped.items() if name not in left_out}


Name = Annotated[str, Field(min_length=1, max_length=253)]
Hash = Annotated[str, Field(max_length=100)]
Weight = Annotated[int, Field(ge=1, lt=2**31)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Seconds = Annotated[float, Field(ge=0)]
TenantPattern = Annotated[str, Field(max_length=253, pattern=r"^([A-Za-z0-9][-_.A-Za-z0-9]*\*?|\*)$")]
"""A tenant's name; or how the names of several begin, and ``*``."""


def _not_none_at_all(share: int | str) -> int | str:
    if share in (0, "0%"):
        raise ValueError("expected at least 1, or at least 1%: with none no request could ever run")
    return share


Borrowers = Literal["SameOrHigherPriority", "AnyPriority"]
"""Which zones may borrow from a zone, by their priority against the lender's."""

EvictionPolicy = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=63)]
"""In which order a zone's own cached blocks go, by a name. The engine says which names there are."""


class Lending(_Model):
    """What others may borrow of a reservation that its owner does not use."""

    lendable: BlockShare = "100%"
    """Blocks, or a percentage of the reservation."""
    borrowers: Borrowers = "SameOrHigherPriority"
    max_loan_seconds: Seconds | None = None
    """After this time a loan is due; None: when the lender asks for it."""
    grace_seconds: Seconds = 30.0
    """How long a loan that is due may stay in use before the borrower's requests are preempted for it."""


class Release(_Model):
    """The steps in which a quiet zone's cached blocks are freed."""

    share: Annotated[str, Field(pattern=r"^(100|[1-9][0-9]?)%$")]
    """Of what the zone kept cached when it became quiet."""
    every_seconds: Annotated[float, Field(ge=1)]
    """From one step to the next, and from the moment when the zone became quiet to the first one."""


class Idle(_Model):
    """What happens to a zone without requests, and after how many seconds; None: never."""

    after_seconds: Seconds = 60.0
    evict_after_seconds: Seconds | None = None
    forget_after_seconds: Seconds | None = None
    release: Release | None = None
    """None: all at once, at ``evict_after_seconds``."""

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_unset(self, dump(self), "release")


class Queue(_Model):
    """What of a zone may wait in one engine to be scheduled for the first time; None: as much as comes."""

    requests: Count | None = None
    tokens: Count | None = None
    """Of their prompts."""


class RequestLimits(_Model):
    """What one request of a zone may ask for; None: whatever the engine can do."""

    max_tokens: Count | None = None
    """Of an answer; a request that names no length is bounded, too."""
    choices: Count | None = None
    """Answers to one prompt."""
    logprobs: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """The likeliest tokens that are told with each token."""
    body_bytes: Count | None = None
    prompts: Count | None = None
    """In one body; each of them is a request of its own for the engine."""
    structured_outputs: Literal["Any", "Schemas"] | None = None
    """What an answer's form may be said by; `Schemas`: by nothing that has patterns or grammars in it. None: `Any`."""


class RequestPriority(_Model):
    """The range of ``priority`` in requests of a zone; None: unbounded on that side. 0, that of most, is in it."""

    min: Annotated[int, Field(ge=-(2**31), le=0)] | None = None
    max: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class SeatShare(_Model):
    """Requests of a zone that run at once in one engine; each a number, or a percentage of what the engine can run."""

    reserved: BlockShare | None = None
    """None: the share that comes with the blocks that the zone reserves."""
    limit: Annotated[BlockShare, AfterValidator(_not_none_at_all)] | None = None
    """None: as many as are free."""

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        if self.reserved is not None and _exceeds(self.reserved, self.limit):
            raise ValueError(f"reserved ({self.reserved}) must not exceed limit ({self.limit})")
        return self


class Retention(_Model):
    """How long what a zone's requests have computed is kept for others that begin alike."""

    ttl_seconds: Annotated[float, Field(gt=0)] | None = None
    """A cached block goes when it was not used for so long; None: it stays as long as there is room."""
    no_store: bool = False
    """Whether nothing is kept at all."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.no_store and self.ttl_seconds is not None:
            raise ValueError("ttl says how long blocks are kept, and noStore that none is; unset one of them")
        return self


HeaderName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
"""Of an HTTP header, in lower case."""


class Fairness(_Model):
    """Who shares a zone's service, besides zones among themselves."""

    header: HeaderName | None = None
    """Of requests: it names the user, and users are served alike; None: first come, first served."""

    @model_validator(mode="after")
    def _is_its_own(self) -> Self:
        if self.header in READ_BY_OTHERS:
            raise ValueError(f"fairness.header ('{self.header}') must be a header of its own, which nothing else reads")
        return self


TargetSeconds = Annotated[float, Field(ge=0.001, le=600.0)]


class Latency(_Model):
    """Targets for the time that a zone's requests take, at the 99th percentile; None: no target."""

    token_time_seconds: TargetSeconds | None = None
    """Between two tokens of a request."""
    first_token_seconds: TargetSeconds | None = None
    """From a request's arrival to its first token."""


PURGE_ANNOTATION: Final = "tenantzone.io/purge"
"""Set on a TenantZone to an id that was not there before, to have all go that the zone has cached."""

PurgeId = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?$")]
"""The name of one purge of a zone; empty: none."""


class ZoneConfig(_Model):
    """The config of one tenant's zone."""

    name: Name
    tenant: Name
    generation: Annotated[int, Field(ge=0)]
    """``metadata.generation`` of the TenantZone that this was made from; the engine reports it back."""
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    reserved: BlockShare = 0
    limit: BlockShare | None = None
    """Hard cap; None: the whole pool."""
    weight: Weight = 1
    lending: Lending = Lending()
    idle: Idle = Idle()
    eviction_policy: EvictionPolicy = "LRU"
    scrub: Literal["OnTransfer", "Never"] = "Never"
    queue: Queue = Queue()
    request_limits: RequestLimits = RequestLimits()
    request_priority: RequestPriority = RequestPriority()
    retention: Retention = Retention()
    latency: Latency = Latency()
    fairness: Fairness = Fairness()
    seats: SeatShare = SeatShare()
    purge: PurgeId = ""
    """What was cached when an engine first reads this id goes, once; empty: nothing is to go."""

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        newer = ("queue", "request_limits", "request_priority", "retention", "latency", "fairness", "seats", "purge")
        return _without_unset(self, dump(self), *newer)

    @cached_property
    def text(self) -> str:
        """The zone as canonical JSON, kept because of thousands of zones few change from one config to the next."""
        return canonical(self.model_dump(mode="json", by_alias=True))

    def __copy__(self) -> Self:
        copied = super().__copy__()
        # A copy is made to change something in it.
        copied.__dict__.pop("text", None)
        return copied

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        if _exceeds(self.reserved, self.limit):
            raise ValueError(f"reserved ({self.reserved}) must not exceed limit ({self.limit})")
        if isinstance(self.lending.lendable, int) and _exceeds(self.lending.lendable, self.reserved):
            raise ValueError(f"lending.lendable ({self.lending.lendable}) must not exceed reserved ({self.reserved})")
        return self


def _exceeds(amount: int | str, bound: int | str | None) -> bool:
    """Whether an amount certainly exceeds a bound: a count and a percentage can only be compared on an engine."""
    if isinstance(amount, int) and isinstance(bound, int):
        return amount > bound
    if isinstance(amount, str) and isinstance(bound, str):
        return percentage(amount) > percentage(bound)
    return False


class UnknownTenantTemplate(_Model):
    """What an auto-registered zone is given if its tenant is of no level; its reservation is 0 and its weight 1."""

    limit: BlockShare | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    idle: Idle = Idle()


class TenantLevel(_Model):
    """What the auto-registered zones of some tenants are given; their idle times are the template's."""

    name: Name
    tenants: Annotated[tuple[TenantPattern, ...], Field(min_length=1, max_length=MAX_TENANTS_OF_A_LEVEL), FailFast()]
    """Whose tenant's name is one of these, or begins with what stands before a ``*``."""
    reserved: BlockShare = 0
    """Taken only while it fits beside all that is declared and all that was taken before."""
    limit: BlockShare | None = None
    weight: Weight = 1
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        if _exceeds(self.reserved, self.limit):
            raise ValueError(f"reserved ({self.reserved}) must not exceed limit ({self.limit})")
        return self

    def has(self, tenant: str) -> bool:
        """Whether the tenant is of this level, provided that it is of none before it."""
        return tenant in self._names or tenant.startswith(self._prefixes)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.tenants)

    @cached_property
    def _prefixes(self) -> tuple[str, ...]:
        return tuple(pattern.removesuffix("*") for pattern in self.tenants if pattern.endswith("*"))


class UnknownTenants(_Model):
    """What happens to a request whose tenant has no zone."""

    mode: Literal["Reject", "AutoRegister"] = "Reject"
    template: UnknownTenantTemplate = UnknownTenantTemplate()
    levels: Annotated[tuple[TenantLevel, ...], Field(max_length=MAX_LEVELS), FailFast()] = ()
    """In the order in which they are tried."""

    @model_validator(mode="after")
    def _levels_are_distinct(self) -> Self:
        names = [level.name for level in self.levels]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"levels: two levels have the name {name!r}")
        return self

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_unset(self, dump(self), "levels")

    def level_of(self, tenant: str) -> TenantLevel | None:
        """The first level that the tenant is of; None: the template is for it."""
        return next((level for level in self.levels if level.has(tenant)), None)


class Watermarks(_Model):
    """Fractions of free blocks: background eviction starts under ``low`` and stops at ``high``."""

    low: Annotated[float, Field(ge=0, le=1)] = 0.0
    high: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) must not exceed high ({self.high})")
        return self


class PoolConfig(_Model):
    """What all zones of a pool share."""

    namespace: Name
    name: Name
    unknown_tenants: UnknownTenants = UnknownTenants()
    watermarks: Watermarks = Watermarks()
    identity: IdentityConfig | None = None
    """How the tenants of requests are known; None: by the API keys that are mounted."""

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_unset(self, dump(self), "identity")

    @property
    def text(self) -> str:
        """The pool's part of the config as canonical JSON."""
        return canonical(self.model_dump(mode="json", by_alias=True))


class RuntimeConfig(_Model):
    """A complete snapshot of a pool and its zones, with a number and a hash of its content.

    ``generation`` grows by one with each change of content; ``hash`` covers the content.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    generation: Annotated[int, Field(ge=1)]
    hash: Hash
    pool: PoolConfig
    zones: tuple[ZoneConfig, ...] = ()

    @model_validator(mode="after")
    def _zones_are_distinct(self) -> Self:
        for what in ("name", "tenant"):
            seen: set[str] = set()
            for zone in self.zones:
                value = getattr(zone, what)
                if value in seen:
                    raise ValueError(f"zones: two zones have the {what} {value!r}")
                seen.add(value)
        return self

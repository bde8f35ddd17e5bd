"""The runtime config: one complete, self-checking snapshot of a pool and its zones.

The operator writes it into the pool's ConfigMap under ``CONFIG_KEY``; kubelet projects it into each engine pod; the
engine and its frontend read it (`tenantzone_contract.packing`). A snapshot is applied whole or not at all.
"""

from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tenantzone_contract.config_model import ConfigModel, Name, Priority, Weight, canonical, exceeds, without_unset
from tenantzone_contract.identity import IdentityConfig
from tenantzone_contract.share import BlockShare
from tenantzone_contract.tiers import Offload, PoolTiers, TierShare
from tenantzone_contract.unknown_tenants import UnknownTenants
from tenantzone_contract.zone_terms import (
    Adapters,
    Fairness,
    Idle,
    Latency,
    Lending,
    Queue,
    RequestLimits,
    RequestPriority,
    Retention,
    SeatShare,
)

SCHEMA_VERSION: Final = 1
"""The version of a snapshot's text."""

NEWEST_SCHEMA_VERSION: Final = 2
"""The newest version of the stored form; see `tenantzone_contract.packing`."""

MAX_GENERATION: Final = 2**52
"""The upper bound of generations, which no pool reaches.

A larger number was not written by the operator, and would soon exceed JSON's exact numbers.
"""

MAX_ZONES: Final = 50_000
"""The most zones of one config, however small they compress: the reader has all of them in memory."""

CONFIG_KEY: Final = "config.json"
"""The ConfigMap's key, and so the name of the file in the engine's config folder."""

CONFIG_HASH_ANNOTATION = "tenantzone.io/config-hash"
"""Set on an engine pod after the ConfigMap has changed: kubelet then syncs that pod's volumes at once."""


class ConfigError(ValueError):
    """A config that can't be used; the message names the field and says what to change."""


Hash = Annotated[str, Field(max_length=100)]
EvictionPolicy = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=63)]
"""The name of the order in which a zone's own cached blocks are evicted. The engine defines the names."""

PURGE_ANNOTATION: Final = "tenantzone.io/purge"
"""Set on a TenantZone to a new id, to purge everything that the zone has cached."""

PurgeId = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?$")]
"""The name of one purge of a zone; empty for none."""
NumberedPurgeId = Annotated[
    str, Field(max_length=73, pattern=r"^([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?(#[1-9][0-9]*)?)?$")
]
"""The name of a purge, with a number if the name was used before."""


class ZoneConfig(ConfigModel):
    """The config of one tenant's zone."""

    name: Name
    tenant: Name
    generation: Annotated[int, Field(ge=0)]
    """``metadata.generation`` of the TenantZone that this was made from; the engine reports it back."""
    priority: Priority = 0
    reserved: BlockShare = 0
    limit: BlockShare | None = None
    """The hard cap; None for the whole pool."""
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
    adapters: Adapters | None = None
    """The LoRA adapters that the tenant may use; None for all adapters of the engine."""
    tiers: tuple[TierShare, ...] = ()
    """The zone's shares of the tiers below the engine's blocks. In a tier without a share it uses what others leave."""
    offload: Offload = "All"
    """What of the zone's requests is stored in tiers."""
    purge: NumberedPurgeId = ""
    """When an engine first reads this id, it evicts what is cached, once; empty for no purge."""

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        newer = (
            "queue",
            "request_limits",
            "request_priority",
            "retention",
            "latency",
            "fairness",
            "seats",
            "purge",
            "adapters",
            "tiers",
            "offload",
        )
        return without_unset(self, dump(self), *newer)

    @cached_property
    def text(self) -> str:
        """The zone as canonical JSON; cached, because of thousands of zones few change between two configs."""
        return canonical(self.model_dump(mode="json", by_alias=True))

    def __copy__(self) -> Self:
        copied = super().__copy__()
        # A copy is made in order to change it.
        copied.__dict__.pop("text", None)
        return copied

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        if exceeds(self.reserved, self.limit):
            raise ValueError(f"reserved ({self.reserved}) must not exceed limit ({self.limit})")
        if isinstance(self.lending.lendable, int) and exceeds(self.lending.lendable, self.reserved):
            raise ValueError(f"lending.lendable ({self.lending.lendable}) must not exceed reserved ({self.reserved})")
        return self

    @model_validator(mode="after")
    def _tiers_agree(self) -> Self:
        seen: set[str] = set()
        longest = self.retention.ttl_seconds
        for share in self.tiers:
            if share.tier in seen:
                raise ValueError(f"tiers: {share.tier} is named twice")
            seen.add(share.tier)
            ttl = share.ttl_seconds
            if ttl is not None and longest is not None and ttl > longest:
                raise ValueError(
                    f"tiers: the ttl of {share.tier} ({ttl:g} s) must not exceed retention.ttl ({longest:g} s), which "
                    "is for all tiers"
                )
        return self


class Watermarks(ConfigModel):
    """Fractions of free blocks: background eviction starts under ``low`` and stops at ``high``."""

    low: Annotated[float, Field(ge=0, le=1)] = 0.0
    high: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) must not exceed high ({self.high})")
        return self


class PoolConfig(ConfigModel):
    """The part of the config that all zones of a pool share."""

    namespace: Name
    name: Name
    unknown_tenants: UnknownTenants = UnknownTenants()
    watermarks: Watermarks = Watermarks()
    identity: IdentityConfig | None = None
    """How the tenants of requests are identified; None for the mounted API keys."""
    tiers: PoolTiers = PoolTiers()
    """The tiers below each engine's blocks."""

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unset(self, dump(self), "identity", "tiers")

    @property
    def text(self) -> str:
        """The pool's part of the config as canonical JSON."""
        return canonical(self.model_dump(mode="json", by_alias=True))


class RuntimeConfig(ConfigModel):
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

"""The runtime config: one complete, self-checking snapshot of a pool and its zones.

The operator writes the snapshot into the pool's ConfigMap under ``CONFIG_KEY``. kubelet mounts the ConfigMap into each
engine pod, where the engine and its frontend read the snapshot (`tenantzone_contract.zone_config.packing`). A snapshot
is applied completely or not at all.
"""

from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tenantzone_contract.zone_config.config_model import (
    ConfigModel,
    Name,
    Priority,
    Weight,
    canonical,
    exceeds,
    without_unset,
)
from tenantzone_contract.zone_config.identity import IdentityConfig
from tenantzone_contract.zone_config.share import BlockShare
from tenantzone_contract.zone_config.tiers import Offload, PoolTiers, TierShare
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants
from tenantzone_contract.zone_config.zone_terms import (
    Adapters,
    Fairness,
    Idle,
    LatencyTargets,
    Lending,
    QueueBounds,
    RequestLimits,
    RequestPriority,
    Retention,
    SeatShare,
)

SCHEMA_VERSION: Final = 1
"""Version of a snapshot's JSON schema."""

NEWEST_SCHEMA_VERSION: Final = 2
"""Newest version of the stored format; see `tenantzone_contract.zone_config.packing`."""

MAX_GENERATION: Final = 2**52
"""Maximum generation, which no pool reaches.

A larger number can't come from the operator, and would soon exceed the integers that JSON parsers represent exactly.
"""

MAX_ZONES: Final = 50_000
"""Maximum number of zones in a config, because a reader keeps all zones in memory."""

CONFIG_KEY: Final = "config.json"
"""Key of the config in the ConfigMap, and name of the file in the engine's config folder."""

CONFIG_HASH_ANNOTATION = "tenantzone.io/config-hash"
"""Annotation on engine pods. The operator sets it to a new config's hash, so that kubelet syncs volumes at once."""


class ConfigError(ValueError):
    """A config can't be used. The message names the field and states the remedy."""


Hash = Annotated[str, Field(max_length=100)]
EvictionPolicy = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=63)]
"""Name of the order in which a zone's own cached blocks are evicted. The engine defines the names."""

PURGE_ANNOTATION: Final = "tenantzone.io/purge"
"""Annotation on a TenantZone. Setting the annotation to a new id purges the zone's cache."""

PurgeId = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?$")]
"""Id of a purge of a zone, or empty for no purge."""
NumberedPurgeId = Annotated[
    str, Field(max_length=73, pattern=r"^([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?(#[1-9][0-9]*)?)?$")
]
"""Id of a purge. If the id was used before, ``#`` and a number follow."""


class ZoneConfig(ConfigModel):
    """The config of one tenant's zone."""

    name: Name
    tenant: Name
    generation: Annotated[int, Field(ge=0)]
    """``metadata.generation`` of the TenantZone from which the config was made. The engine reports this number."""
    priority: Priority = 0
    reserved: BlockShare = 0
    limit: BlockShare | None = None
    """Maximum that the zone may hold, or None for all blocks of the engine."""
    weight: Weight = 1
    lending: Lending = Lending()
    idle: Idle = Idle()
    eviction_policy: EvictionPolicy = "LRU"
    scrub: Literal["OnTransfer", "Never"] = "Never"
    queue: QueueBounds = QueueBounds()
    request_limits: RequestLimits = RequestLimits()
    request_priority: RequestPriority = RequestPriority()
    retention: Retention = Retention()
    latency: LatencyTargets = LatencyTargets()
    fairness: Fairness = Fairness()
    seats: SeatShare = SeatShare()
    adapters: Adapters | None = None
    """LoRA adapters that the tenant may use, or None for all adapters of the engine."""
    tiers: tuple[TierShare, ...] = ()
    """Zone's shares of the tiers below the engine's blocks. In a tier without a share, the zone uses only free room."""
    offload: Offload = "All"
    """Tokens of the zone's requests that are stored in tiers."""
    purge: NumberedPurgeId = ""
    """Id of the last purge, or empty for no purge. An engine purges the zone once, when it first reads the id."""

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
        """The zone as canonical JSON. Cached, because only a few of thousands of zones differ between two configs."""
        return canonical(self.model_dump(mode="json", by_alias=True))

    def __copy__(self) -> Self:
        copied = super().__copy__()
        # Copies are made to be changed, so the cached text must not be copied.
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
                    "applies to all tiers"
                )
        return self


class Watermarks(ConfigModel):
    """Fractions of free blocks. Background eviction starts below ``low``, and stops at ``high``."""

    low: Annotated[float, Field(ge=0, le=1)] = 0.0
    high: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) must not exceed high ({self.high})")
        return self


class PoolConfig(ConfigModel):
    """The settings of a pool."""

    namespace: Name
    name: Name
    unknown_tenants: UnknownTenants = UnknownTenants()
    watermarks: Watermarks = Watermarks()
    identity: IdentityConfig | None = None
    """Method by which tenants of requests are identified, or None for the mounted API keys."""
    tiers: PoolTiers = PoolTiers()
    """Tiers below each engine's blocks."""

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unset(self, dump(self), "identity", "tiers")

    @property
    def text(self) -> str:
        """The pool's part of the config as canonical JSON."""
        return canonical(self.model_dump(mode="json", by_alias=True))


class RuntimeConfig(ConfigModel):
    """A complete snapshot of a pool and its zones, with a number and a hash of its content.

    ``generation`` increases by one with each change of the content. ``hash`` covers the content.
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

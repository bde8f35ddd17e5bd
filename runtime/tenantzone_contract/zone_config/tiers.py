"""The tiers below an engine's blocks: the tiers of a pool's engines, and a zone's share of each tier."""

from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tenantzone_contract.zone_config.config_model import ConfigModel, exceeds, without_unset
from tenantzone_contract.zone_config.share import BlockShare, ceil_blocks, floor_blocks

TierName = Literal["cpu", "disk"]
"""cpu: memory of the engine's machine. disk: files in a folder that only the engine uses."""

TIER_NAMES: Final[tuple[TierName, ...]] = get_args(TierName)
"""Names of the tiers, fastest first."""

SharedTierName = Literal["shared"]
"""shared: storages of many engines, whose content a KV-cache manager tracks. No engine owns a part of the tier."""

AnyTierName = TierName | SharedTierName
SHARED_TIER: Final[SharedTierName] = "shared"

MAX_BYTES: Final = 2**53 - 1
"""Largest integer that every JSON parser represents exactly."""

Bytes = Annotated[int, Field(ge=1, le=MAX_BYTES)]

ByteShare = BlockShare
"""Number of bytes, or a percentage of the tier's size in one engine."""

Offload = Literal["Prompt", "All", "Never"]
"""Tokens of a zone's requests that are stored in tiers: prompt tokens, prompt and generated tokens, or none."""


Admission = Literal["Always", "SeenTwice", "Auto"]
"""Rule that selects which of a zone's prefixes are stored in a tier.

Always: all prefixes. SeenTwice: prefixes that an earlier request of the zone also had. Auto: like SeenTwice while the
zone loads too few of the bytes that it offers (:mod:`~tenantzone_contract.reports.tier_effect`), else like Always.
"""


class CpuTier(ConfigModel):
    """Memory of the machine that an engine runs on."""

    bytes: Bytes


class DiskTier(ConfigModel):
    """Files of an engine."""

    folder: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^\x00]*$")]
    """Folder in the engine's pod that no other engine uses."""
    bytes: Bytes


class PoolTiers(ConfigModel):
    """The tiers of each engine of a pool. A tier is None if the engines do not have it."""

    cpu: CpuTier | None = None
    disk: DiskTier | None = None

    def bytes_of(self, tier: TierName) -> int:
        """Returns the number of bytes that a tier has in each engine, or 0 if the engines do not have the tier."""
        declared: CpuTier | DiskTier | None = getattr(self, tier)
        return 0 if declared is None else declared.bytes


class TierShare(ConfigModel):
    """A zone's share of one tier: its reservation, its limit, and the retention of unused chunks."""

    tier: TierName
    reserved: ByteShare = 0
    limit: ByteShare | None = None
    """Maximum that the zone may use, or None for the whole tier."""
    ttl_seconds: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which an unused chunk is evicted, or None to use the zone's retention."""
    admission: Admission = "Always"

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        if exceeds(self.reserved, self.limit):
            raise ValueError(f"reserved ({self.reserved}) must not exceed limit ({self.limit})")
        return self

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unset(self, dump(self), "admission")


def reserved_chunks(share: ByteShare, chunk_bytes: int, chunk_count: int) -> int:
    """Returns a reservation in chunks, rounded down so that reservations that fit in bytes also fit in chunks."""
    return share // chunk_bytes if isinstance(share, int) else floor_blocks(share, chunk_count)


def limit_chunks(share: ByteShare | None, chunk_bytes: int, chunk_count: int) -> int:
    """Returns a limit in chunks, rounded up. If ``share`` is None, returns the number of all chunks."""
    if share is None:
        return chunk_count
    return min(chunk_count, -(-share // chunk_bytes) if isinstance(share, int) else ceil_blocks(share, chunk_count))

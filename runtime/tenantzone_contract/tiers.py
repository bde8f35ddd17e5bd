"""The tiers below an engine's blocks: those of a pool's engines, and a zone's share of each."""

from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tenantzone_contract.config_model import ConfigModel, exceeds, without_unset
from tenantzone_contract.share import BlockShare, ceil_blocks, floor_blocks

TierName = Literal["cpu", "disk"]
"""cpu: the memory of the engine's machine. disk: files in a folder of the engine's own."""

TIER_NAMES: Final[tuple[TierName, ...]] = get_args(TierName)
"""The tiers, the fastest first."""

SharedTierName = Literal["shared"]
"""shared: storages of many engines, whose content a KV-cache manager tracks. No engine owns a part of it."""

AnyTierName = TierName | SharedTierName
SHARED_TIER: Final[SharedTierName] = "shared"

MAX_BYTES: Final = 2**53 - 1
"""The largest number that every reader of JSON knows exactly."""

Bytes = Annotated[int, Field(ge=1, le=MAX_BYTES)]

ByteShare = BlockShare
"""Bytes, or a percentage of the tier's size in one engine."""

Offload = Literal["Prompt", "All", "Never"]
"""What of a zone's requests is stored in tiers: prompt tokens, also generated tokens, or nothing."""


Admission = Literal["Always", "SeenTwice", "Auto"]
"""Which of a zone's prefixes are stored in a tier.

Always: all. SeenTwice: those that an earlier request of the zone had, too. Auto: as SeenTwice while the zone loads too
little of what it offers (:mod:`~tenantzone_contract.tier_effect`), else all.
"""


class CpuTier(ConfigModel):
    """Memory of the machine that an engine runs on."""

    bytes: Bytes


class DiskTier(ConfigModel):
    """Files of an engine."""

    folder: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^\x00]*$")]
    """The folder in the engine's pod, used by that engine alone."""
    bytes: Bytes


class PoolTiers(ConfigModel):
    """The tiers that each engine of a pool has; None if it has no such tier."""

    cpu: CpuTier | None = None
    disk: DiskTier | None = None

    def bytes_of(self, tier: TierName) -> int:
        """Returns the size of a tier in each engine; 0 if there is none."""
        declared: CpuTier | DiskTier | None = getattr(self, tier)
        return 0 if declared is None else declared.bytes


class TierShare(ConfigModel):
    """A zone's share of one tier: its reservation, its cap, and how long unused chunks stay."""

    tier: TierName
    reserved: ByteShare = 0
    limit: ByteShare | None = None
    """The cap; None for the whole tier."""
    ttl_seconds: Annotated[float, Field(gt=0)] | None = None
    """A chunk unused for this long is evicted; None to follow the zone's retention."""
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
    """Returns a reservation in chunks, rounded down: reservations that fit in bytes also fit in chunks."""
    return share // chunk_bytes if isinstance(share, int) else floor_blocks(share, chunk_count)


def limit_chunks(share: ByteShare | None, chunk_bytes: int, chunk_count: int) -> int:
    """Returns a limit in chunks, rounded up; None stands for all chunks."""
    if share is None:
        return chunk_count
    return min(chunk_count, -(-share // chunk_bytes) if isinstance(share, int) else ceil_blocks(share, chunk_count))

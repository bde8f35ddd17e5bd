"""The tiers below an engine's blocks: which a pool's engines have, and what a zone has of each."""

from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tenantzone_contract.config_model import ConfigModel, exceeds, without_unset
from tenantzone_contract.share import BlockShare, ceil_blocks, floor_blocks

TierName = Literal["cpu", "disk"]
"""cpu: the memory of the engine's machine. disk: files in a folder of the engine's own."""

TIER_NAMES: Final[tuple[TierName, ...]] = get_args(TierName)
"""The fastest first."""

SharedTierName = Literal["shared"]
"""shared: storages of many engines, of which a KV-cache manager knows what lies where. No engine has a part of it."""

AnyTierName = TierName | SharedTierName
SHARED_TIER: Final[SharedTierName] = "shared"

MAX_BYTES: Final = 2**53 - 1
"""The largest number that every reader of JSON knows exactly."""

Bytes = Annotated[int, Field(ge=1, le=MAX_BYTES)]

ByteShare = BlockShare
"""Bytes, or a percentage of what the tier has in one engine."""

Offload = Literal["Prompt", "All", "Never"]
"""What of a zone's requests goes on in tiers: the tokens of prompts, the generated ones, too, or nothing."""


Admission = Literal["Always", "SeenTwice", "Auto"]
"""Which of a zone's prefixes are stored in a tier.

Always: all. SeenTwice: those that an earlier request of the zone had, too. Auto: as SeenTwice while the tier gives back
too little of what the zone offers (:mod:`~tenantzone_contract.tier_effect`), else all.
"""


class CpuTier(ConfigModel):
    """Memory of the machine that an engine runs on."""

    bytes: Bytes


class DiskTier(ConfigModel):
    """Files of an engine."""

    folder: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^\x00]*$")]
    """In the engine's pod; of that engine alone."""
    bytes: Bytes


class PoolTiers(ConfigModel):
    """The tiers that each engine of a pool has; None: it has no such tier."""

    cpu: CpuTier | None = None
    disk: DiskTier | None = None

    def bytes_of(self, tier: TierName) -> int:
        """What a tier has in each engine; 0: there is none."""
        declared: CpuTier | DiskTier | None = getattr(self, tier)
        return 0 if declared is None else declared.bytes


class TierShare(ConfigModel):
    """A zone's share of one tier: what it is promised there, its cap, and how long what is unused stays."""

    tier: TierName
    reserved: ByteShare = 0
    limit: ByteShare | None = None
    """None: the whole tier."""
    ttl_seconds: Annotated[float, Field(gt=0)] | None = None
    """What was not used for so long goes; None: as the zone's retention says."""
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
    """The chunks that a reservation comes to, rounded down: what fits in bytes fits in chunks."""
    return share // chunk_bytes if isinstance(share, int) else floor_blocks(share, chunk_count)


def limit_chunks(share: ByteShare | None, chunk_bytes: int, chunk_count: int) -> int:
    """The chunks that a limit comes to, rounded up; None stands for all of them."""
    if share is None:
        return chunk_count
    return min(chunk_count, -(-share // chunk_bytes) if isinstance(share, int) else ceil_blocks(share, chunk_count))

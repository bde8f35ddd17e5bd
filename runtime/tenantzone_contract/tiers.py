"""What a zone has of a tier below the GPU, as whoever runs the engine says it."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from tenantzone_contract.share import BlockShare, percentage


class TierShare(BaseModel):
    """A zone's share of one tier: what it is promised there, its cap, and how long what is unused stays.

    Amounts are the tier's chunks, or a percentage of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    reserved: BlockShare = 0
    limit: BlockShare | None = None
    """None: the whole tier."""
    ttl_seconds: Annotated[float, Field(gt=0)] | None = None
    """A chunk goes when it was not used for so long; None: as the zone's retention says of the engine's blocks."""

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        if type(self.reserved) is type(self.limit) and _amount(self.reserved) > _amount(self.limit):
            raise ValueError(f"reserved ({self.reserved}) must not exceed limit ({self.limit})")
        return self


def _amount(share: int | str | None) -> int:
    return percentage(share) if isinstance(share, str) else share or 0

"""The block map: which zone owns which block of an engine. The operator's console requests it from the admin port."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

BLOCKS_VERSION: Final = 1

BLOCKS_PATH = "/blocks"
CELLS_PARAMETER = "cells"
"""The query's parameter for the most cells that the map may have."""
TIER_PARAMETER = "tier"
"""The query's parameter for the tier whose chunks are shown instead of the engine's blocks."""
DEFAULT_CELLS = 1024
MAX_CELLS = 4096

BlockUse = Literal["free", "in_use", "cached"]
"""in_use: some request refers to it. cached: none does, and its prefix is kept. free: neither."""

Count = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    # An older operator must be able to read a newer engine's map: unknown fields are ignored.
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


class BlockKind(_Model):
    """A kind of blocks that look alike in the block map: their owner and their use."""

    tenant: str | None = None
    """The tenant of the zone that owns the blocks; None if no zone does.

    Blocks of requests from before the first zone have no owner either.
    """
    zone: str | None = None
    """The zone's name."""
    use: BlockUse
    borrowed: bool = False
    """Whether the blocks are shown as borrowed.

    A loan is an amount and names no blocks: these are the blocks that the borrower would lose first, cached ones in the
    order of their eviction, then ones in use.
    """
    blocks: Count
    """The exact number of blocks."""


class BlockMap(_Model):
    """All blocks of one engine, or all chunks of one of its tiers, in the order of their ids, in cells of one or more.

    If a cell stands for several blocks, each kind gets cells in proportion to its share of the pool, as near to its
    blocks as possible. The map is made while the engine works, so it may mix two moments, but it never contains a block
    twice.
    """

    version: Literal[1] = BLOCKS_VERSION
    pod: str = ""
    tier: str = ""
    """The tier of the chunks; empty for the engine's blocks. A chunk in transfer is in use."""
    capacity_blocks: Count
    """The blocks that requests can use, without vLLM's null block."""
    blocks_per_cell: Annotated[int, Field(ge=1)]
    """The number of blocks per cell; the last cell may stand for fewer."""
    kinds: tuple[BlockKind, ...] = ()
    """The kinds in the map. A kind that is too small for a cell is left out."""
    runs: Annotated[tuple[tuple[Count, Count], ...], Field(max_length=MAX_CELLS)] = ()
    """Runs of cells that look alike: the index of their kind, and their number."""
    taken_unix_time: float

    @model_validator(mode="after")
    def _is_of_a_size_that_can_be_shown(self) -> "BlockMap":
        if any(kind >= len(self.kinds) for kind, _ in self.runs):
            raise ValueError("a run is of a kind that is not there")
        if sum(cells for _, cells in self.runs) > MAX_CELLS:
            raise ValueError(f"there are more than {MAX_CELLS} cells")
        return self


def parse_block_map(text: str | bytes) -> BlockMap:
    """Read a block map from its JSON.

    Raises:
        ValueError: it is not a block map, or its version is unknown.
    """
    return BlockMap.model_validate_json(text)

"""The block map: which zone has which block of an engine, for the operator's console to ask the admin port for."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

BLOCKS_VERSION: Final = 1

BLOCKS_PATH = "/blocks"
CELLS_PARAMETER = "cells"
"""Of the query: how many cells the picture may have at most."""
TIER_PARAMETER = "tier"
"""Of the query: which tier's chunks are shown in place of the engine's blocks."""
DEFAULT_CELLS = 1024
MAX_CELLS = 4096

BlockUse = Literal["free", "in_use", "cached"]
"""in_use: some request refers to it. cached: none does, and its prefix is kept. free: neither."""

Count = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    # An older operator must be able to read a newer engine's picture: unknown fields are ignored.
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


class BlockKind(_Model):
    """A kind of blocks that look alike in the block map: whose they are, and how they are used."""

    tenant: str | None = None
    """Of the zone that owns them; None: no zone does. What requests from before the first zone use or left cached is
    shown so, too."""
    zone: str | None = None
    """The zone's name."""
    use: BlockUse
    borrowed: bool = False
    """Whether they are shown as borrowed. A loan is an amount and names no blocks: these are the ones that the borrower
    would lose first, cached ones in the order of their eviction, then ones in use."""
    blocks: Count
    """Exactly so many."""


class BlockMap(_Model):
    """All blocks of one engine, or all chunks of one of its tiers, in the order of their ids, in cells of one or more.

    Where a cell stands for several blocks, each kind has as many cells as befits its share of the pool, as near to its
    blocks as can be. The picture is taken while the engine works, so it may show two moments at once, but never a block
    twice.
    """

    version: Literal[1] = BLOCKS_VERSION
    pod: str = ""
    tier: str = ""
    """Whose chunks they are; empty: they are the engine's blocks. A chunk in transfer is in use."""
    capacity_blocks: Count
    """Blocks that requests can use (vLLM's null block is not among them)."""
    blocks_per_cell: Annotated[int, Field(ge=1)]
    """The last cell may stand for fewer."""
    kinds: tuple[BlockKind, ...] = ()
    """Those that are in the picture. One that is too small for a cell is left out."""
    runs: Annotated[tuple[tuple[Count, Count], ...], Field(max_length=MAX_CELLS)] = ()
    """Cells that look alike, one after the other: the index of their kind, and how many they are."""
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
        ValueError: it is not one, or it is of a version that this code does not know.
    """
    return BlockMap.model_validate_json(text)

"""The block map, which shows the owner and use of each block of an engine.

The operator's console requests the block map from the engine's admin port.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator
from pydantic.alias_generators import to_camel

from tenantzone_contract.quantity import MAX_COUNT

BLOCKS_VERSION: Final = 1

BLOCKS_PATH = "/blocks"
CELLS_PARAMETER = "cells"
"""Name of the query parameter for the maximum number of cells in the map."""
TIER_PARAMETER = "tier"
"""Name of the query parameter for the tier whose chunks the map shows instead of the engine's blocks."""
DEFAULT_CELLS = 1024
MAX_CELLS = 4096

BlockUse = Literal["free", "in_use", "cached"]
"""A block is in_use if a request uses it, cached if only the prefix cache uses it, and otherwise free."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class _Model(BaseModel):
    # Ignore unknown fields, so that an older operator can read a newer engine's map.
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


class BlockKind(_Model):
    """All blocks with the same owner and use, which therefore look alike in the block map."""

    tenant: str | None = None
    """The tenant of the zone that owns the blocks; None if no zone owns them.

    Blocks of requests that began before the first zone existed have no owner either.
    """
    zone: str | None = None
    """The zone's name."""
    use: BlockUse
    borrowed: bool = False
    """Whether the blocks are shown as borrowed.

    A loan is only an amount, so the map marks the blocks that the borrower would lose first: cached blocks in eviction
    order, then blocks in use.
    """
    blocks: Count
    """Exact number of blocks of this kind."""


class BlockMap(_Model):
    """All blocks of one engine, or all chunks of one of its tiers, ordered by id and grouped into cells.

    If a cell stands for several blocks, the number of a kind's cells is proportional to the number of its blocks, and
    the cells are as near to the blocks as possible. The map is made while the engine is running, so the map is not an
    atomic snapshot, but it never contains a block twice.
    """

    version: Literal[1] = BLOCKS_VERSION
    pod: str = ""
    tier: str = ""
    """Name of the tier whose chunks the map shows; empty if it shows blocks. A chunk in transfer counts as in use."""
    capacity_blocks: Count
    """Number of blocks that requests can use, without vLLM's null block."""
    blocks_per_cell: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    """Number of blocks per cell. The last cell may stand for fewer blocks."""
    kinds: tuple[BlockKind, ...] = ()
    """The kinds in the map, without kinds that are too small for a cell."""
    runs: Annotated[tuple[tuple[Count, Count], ...], Field(max_length=MAX_CELLS)] = ()
    """Runs of consecutive cells of one kind. Each run is a pair of an index in ``kinds`` and a number of cells."""
    taken_unix_time: FiniteFloat

    @model_validator(mode="after")
    def _is_of_a_size_that_can_be_shown(self) -> "BlockMap":
        if any(kind >= len(self.kinds) for kind, _ in self.runs):
            raise ValueError("a run's kind is not an index of the list of kinds")
        if sum(cells for _, cells in self.runs) > MAX_CELLS:
            raise ValueError(f"the runs have more than {MAX_CELLS} cells in total")
        return self


def parse_block_map(text: str | bytes) -> BlockMap:
    """Parse a block map from JSON.

    Raises:
        ValueError: the JSON is not a block map, or its version is unknown.
    """
    return BlockMap.model_validate_json(text)

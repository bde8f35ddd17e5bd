"""A block's heat: its recent reads; after each half-life a read counts half as much.

The record stores the heat with the time of last use, which is written anyway. A query is noted at the block where it
ends; the blocks before it are at least as hot.
"""

from typing import Final

from msgspec.structs import replace

from tenantzone_manager.core.records import Block

HALF_LIFE_SECONDS: Final = 600.0
HOT: Final = 2.5
"""The heat from which a block should move to a higher storage: about three reads within two minutes."""
_ONE: Final = 100
"""One read as stored in a record: an integer takes fewer bytes."""


def heat_at(block: Block, now: float) -> float:
    """Returns a block's heat: the reads that ended at it, decayed to ``now``."""
    return _left(block, now) / _ONE


def used(block: Block, at: float, times: int) -> Block:
    """Returns the block after ``times`` more queries ended at it; 0: it was only written."""
    until = max(block.used_at, at)
    return replace(block, used_at=until, hits=block.hits + times, heat=int(_left(block, until)) + times * _ONE)


def with_uses_of(block: Block, gone: Block) -> Block:
    """Returns the block with the uses of a removed child added to its own."""
    until = max(block.used_at, gone.used_at)
    heat = int(_left(block, until) + _left(gone, until))
    return replace(block, used_at=until, hits=block.hits + gone.hits, heat=heat)


def with_last_use_of(block: Block, gone: Block) -> Block:
    """Returns the block with the time of last use of a removed child, whose reads were noted at other blocks, too."""
    return used(block, gone.used_at, 0)


def at_least_as(block: Block, later: Block) -> Block:
    """Returns the block, at least as recently used and as hot as a later one: reading that one reads this one, too."""
    until = max(block.used_at, later.used_at)
    return replace(block, used_at=until, heat=int(max(_left(block, until), _left(later, until))))


def frequency(block: Block) -> float:
    """Returns the score by which LFU orders blocks: how often a block was used, and how recently.

    Twice as many uses compensate for one half-life without use, so blocks that were used often long ago do not keep
    out new ones. While neither of two blocks is used, their order does not change, so stored scores stay right.
    """
    uses = 1 + block.hits
    doublings = uses.bit_length() - 1
    # A piecewise linear logarithm: a score must be the same double on every machine.
    return block.used_at / HALF_LIFE_SECONDS + doublings + (uses / (1 << doublings) - 1)


def _left(block: Block, now: float) -> float:
    return float(block.heat * 0.5 ** (max(0.0, now - block.used_at) / HALF_LIFE_SECONDS))

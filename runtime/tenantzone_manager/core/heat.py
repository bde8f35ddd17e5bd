"""How often a block is read of late: a read counts half as much after each half-life.

It is in the record, with the note of use that is written anyway. A query is noted at the block where it ends; the
blocks before it are at least as hot.
"""

from typing import Final

from msgspec.structs import replace

from tenantzone_manager.core.records import Block

HALF_LIFE_SECONDS: Final = 600.0
HOT: Final = 2.5
"""Reads from which on a block is to lie in a higher storage: three within two minutes, say."""
_ONE: Final = 100
"""One read in a record, where a whole number takes fewer bytes."""


def heat_at(block: Block, now: float) -> float:
    """The reads that have ended at a block, by how much they still count."""
    return _left(block, now) / _ONE


def used(block: Block, at: float, times: int) -> Block:
    """The block once so many queries have ended at it; 0: it was only written."""
    until = max(block.used_at, at)
    return replace(block, used_at=until, hits=block.hits + times, heat=int(_left(block, until)) + times * _ONE)


def with_uses_of(block: Block, gone: Block) -> Block:
    """The block once it stands for one that has gone, too."""
    until = max(block.used_at, gone.used_at)
    heat = int(_left(block, until) + _left(gone, until))
    return replace(block, used_at=until, hits=block.hits + gone.hits, heat=heat)


def with_last_use_of(block: Block, gone: Block) -> Block:
    """The block once it stands for one that has gone, and the same reads were noted at others that it stands for."""
    return used(block, gone.used_at, 0)


def at_least_as(block: Block, later: Block) -> Block:
    """The block as it is if it is read whenever one that comes after it is."""
    until = max(block.used_at, later.used_at)
    return replace(block, used_at=until, heat=int(max(_left(block, until), _left(later, until))))


def frequency(block: Block) -> float:
    """Returns the score by which LFU orders blocks: how often a block was used, and how recently.

    Twice as many uses make up for one half-life without use, so blocks that were used often long ago do not keep out
    new ones. While neither of two blocks is used, their order does not change, so stored scores stay right.
    """
    uses = 1 + block.hits
    doublings = uses.bit_length() - 1
    # The logarithm, with straight lines between powers of two: a score must be the same double on every machine.
    return block.used_at / HALF_LIFE_SECONDS + doublings + (uses / (1 << doublings) - 1)


def _left(block: Block, now: float) -> float:
    return float(block.heat * 0.5 ** (max(0.0, now - block.used_at) / HALF_LIFE_SECONDS))

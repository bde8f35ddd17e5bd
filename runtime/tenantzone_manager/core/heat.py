"""Heat of blocks: the number of recent reads, with exponential decay.

The record of a block stores the heat at the time of last use, so the decay of the heat needs no writes. A query is
recorded only at the block where the query ends, so all earlier blocks of the prompt are at least as hot as that block.
"""

from typing import Final

from msgspec.structs import replace

from tenantzone_manager.core.records import Block

HALF_LIFE_SECONDS: Final = 600.0
HOT: Final = 2.5
"""Minimum heat of a block that should move to a higher storage type: about three reads within two minutes."""
_ONE: Final = 100
"""Value of one read in ``Block.heat``. Heat is stored as an integer, because that takes fewer bytes than a float."""


def heat_at(block: Block, now: float) -> float:
    """Returns a block's heat at the Unix time ``now``, that is, the decayed number of reads that ended at the block."""
    return _left(block, now) / _ONE


def used(block: Block, at: float, times: int) -> Block:
    """Returns ``block`` with ``times`` more recorded queries, or with a recorded write if ``times`` is 0."""
    until = max(block.used_at, at)
    return replace(block, used_at=until, hits=block.hits + times, heat=int(_left(block, until)) + times * _ONE)


def with_uses_of(block: Block, gone: Block) -> Block:
    """Returns ``block`` after adding the hits and the heat of its removed child ``gone``."""
    until = max(block.used_at, gone.used_at)
    heat = int(_left(block, until) + _left(gone, until))
    return replace(block, used_at=until, hits=block.hits + gone.hits, heat=heat)


def with_last_use_of(block: Block, gone: Block) -> Block:
    """Returns ``block`` with the time of last use of its removed child ``gone``, if that time is later.

    The hits and the heat of the child are not added, because the child's reads were also recorded at other blocks.
    """
    return used(block, gone.used_at, 0)


def at_least_as(block: Block, later: Block) -> Block:
    """Returns ``block`` with at least the heat and the time of last use of ``later``, a later block of the prompt.

    A query that reads the later block reads this block, too.
    """
    until = max(block.used_at, later.used_at)
    return replace(block, used_at=until, heat=int(max(_left(block, until), _left(later, until))))


def frequency(block: Block) -> float:
    """Returns a block's LFU score, which combines how often and how recently the block was used.

    Twice as many uses compensate for one half-life without use, so blocks that were used often long ago do not stay
    forever. The order of two blocks does not change while neither is used, so stored scores need no updates.
    """
    uses = 1 + block.hits
    doublings = uses.bit_length() - 1
    # A piecewise linear approximation of log2, because a score must be the same double on every machine.
    return block.used_at / HALF_LIFE_SECONDS + doublings + (uses / (1 << doublings) - 1)


def _left(block: Block, now: float) -> float:
    return float(block.heat * 0.5 ** (max(0.0, now - block.used_at) / HALF_LIFE_SECONDS))

"""Splits long work into parts, so that the engine can make steps in between."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

ALL: Final = sys.maxsize
"""No bound: everything in one part."""
_BLOCKS_PER_ZONE: Final = 50
"""Number of blocks that can be evicted in the time that it takes to consider one zone and its loans."""


def zones_for(blocks: int) -> int:
    """Returns how many zones can be considered in the time that evicting ``blocks`` blocks takes; at least 1."""
    return max(1, blocks // _BLOCKS_PER_ZONE)


def slices(items: Sequence[T], at_once: int) -> Iterator[Sequence[T]]:
    """Generate the items in order, in slices of ``at_once`` items."""
    for first in range(0, len(items), at_once):
        yield items[first : first + at_once]

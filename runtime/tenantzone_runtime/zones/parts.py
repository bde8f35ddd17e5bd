"""Much work cut into parts, between which the engine makes its steps."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

ALL: Final = sys.maxsize
"""As many at once as there are, for who does not want parts."""
_BLOCKS_PER_ZONE: Final = 50
"""What it costs to look at a zone and its loans, in evicted blocks that cost as much, and some more."""


def zones_for(blocks: int) -> int:
    """Returns the number of zones that can be considered for the cost of evicting ``blocks`` blocks; at least 1."""
    return max(1, blocks // _BLOCKS_PER_ZONE)


def slices(items: Sequence[T], at_once: int) -> Iterator[Sequence[T]]:
    """The items in order, in slices of ``at_once``."""
    for first in range(0, len(items), at_once):
        yield items[first : first + at_once]

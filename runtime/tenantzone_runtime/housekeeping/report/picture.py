"""Shows many blocks in few cells, so that each kind of blocks gets its share of the cells. It does no I/O."""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

Kind = TypeVar("Kind", bound=Hashable)


class Picture(Generic[Kind]):
    """A row of cells. Each cell represents several blocks, and shows one kind of blocks.

    If each cell showed its most frequent kind, a kind that is most frequent in no cell would be invisible. So blocks
    that a cell does not show count for later cells. This is the algorithm of Floyd and Steinberg in one dimension (*An
    Adaptive Algorithm for Spatial Grey Scale*, 1976). A cell of one block shows the kind of that block.
    """

    def __init__(self) -> None:
        self.blocks: Counter[Kind] = Counter()
        """Number of blocks of each kind."""
        self.runs: list[tuple[Kind, int]] = []
        """Runs of consecutive cells that show the same kind: the kind, and the number of cells."""
        self._owed: dict[Kind, int] = {}

    def add_cell(self, counts: Counter[Kind]) -> None:
        """Add the next cell. ``counts`` is the number of blocks of each kind in the cell, at least one in total."""
        owed = self._owed
        self.blocks.update(counts)
        for kind, count in counts.items():
            owed[kind] = owed.get(kind, 0) + count
        shown = max(owed, key=owed.__getitem__)
        owed[shown] -= counts.total()
        if not owed[shown]:
            del owed[shown]
        if self.runs and self.runs[-1][0] == shown:
            self.runs[-1] = (shown, self.runs[-1][1] + 1)
        else:
            self.runs.append((shown, 1))

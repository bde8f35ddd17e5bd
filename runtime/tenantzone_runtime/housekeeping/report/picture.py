"""Shows many blocks in few cells with correct proportions. Pure functions without I/O."""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

Kind = TypeVar("Kind", bound=Hashable)


class Picture(Generic[Kind]):
    """A row of cells. Each cell shows one kind of blocks.

    If each cell showed its majority, a kind that has a majority nowhere would be invisible. So blocks that a cell does
    not show are carried over to later cells, so that each kind gets its share of the cells. (Floyd and Steinberg, *An
    Adaptive Algorithm for Spatial Grey Scale*, 1976, in one dimension.) A cell of one block shows that block.
    """

    def __init__(self) -> None:
        self.blocks: Counter[Kind] = Counter()
        """Number of blocks of each kind."""
        self.runs: list[tuple[Kind, int]] = []
        """Runs of cells that show the same kind."""
        self._owed: dict[Kind, int] = {}

    def add_cell(self, counts: Counter[Kind]) -> None:
        """Add the next cell, which represents these blocks, at least one."""
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

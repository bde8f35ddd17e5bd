"""In which order a zone's own cached blocks go when it has to give some up.

Both orders take the ids of blocks, and every operation costs the same however many blocks there are; evicting costs the
same per block, averaged over a life.
"""

from collections import OrderedDict
from collections.abc import Iterable


class LeastRecentlyUsed(OrderedDict[int, None]):
    """The block whose last request ended longest ago goes first. The keys are the ids, in that order."""

    def __init__(self, block_ids: Iterable[int] = ()) -> None:
        super().__init__(dict.fromkeys(block_ids))

    def keep(self, block_ids: Iterable[int]) -> int:
        """No request uses the blocks any more; their prefixes stay. Returns how many they are."""
        before = len(self)
        self.update(dict.fromkeys(block_ids))
        return len(self) - before

    def hit(self, block_ids: Iterable[int]) -> int:
        """A request uses the blocks again. Returns how many they are."""
        before = len(self)
        for block_id in block_ids:
            del self[block_id]
        return before - len(self)

    def drop(self, block_ids: Iterable[int]) -> None:
        """Blocks that were in use go without being kept."""

    def evict(self, count: int) -> list[int]:
        """Give up the next ``count`` blocks. Returns their ids in order."""
        return [self.popitem(last=False)[0] for _ in range(count)]

    def remove(self, block_id: int) -> None:
        """Give up one given block."""
        del self[block_id]


class Clock(LeastRecentlyUsed):
    """A block that was hit since its last turn gets a second chance: a shared prefix outlives a scan of other prompts.

    The order is a ring, its hand at the front: a block under the hand goes, unless it is marked as hit; then it loses
    the mark and waits for the hand's next round. (Corbató, *A Paging Experiment with the Multics System*, 1968.)
    """

    def __init__(self, block_ids: Iterable[int] = ()) -> None:
        super().__init__(block_ids)
        self._hit: set[int] = set()

    def hit(self, block_ids: Iterable[int]) -> int:
        hit = list(block_ids)
        self._hit.update(hit)
        return super().hit(hit)

    def drop(self, block_ids: Iterable[int]) -> None:
        self._hit.difference_update(block_ids)

    def evict(self, count: int) -> list[int]:
        evicted: list[int] = []
        while len(evicted) < count:
            block_id, _ = self.popitem(last=False)
            if block_id in self._hit:
                self._hit.discard(block_id)
                self[block_id] = None
            else:
                evicted.append(block_id)
        return evicted

    def remove(self, block_id: int) -> None:
        super().remove(block_id)
        self._hit.discard(block_id)

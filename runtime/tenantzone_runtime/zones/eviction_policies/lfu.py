"""LFU with dynamic ageing: the least frequently used block is evicted first, but formerly popular blocks age."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tenantzone_runtime.zones.eviction_policies.order import EvictionOrder, Links

MOST_USES: Final = 15
"""Maximum number of uses that are counted. This bounds the steps in which ``_last_up_to`` finds a block's place."""


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """The note of a block in the order. Blocks with the same number of uses at the same age share one note."""

    order: LeastFrequentlyUsed
    count: int
    """Number of uses of the block with its current content, up to ``MOST_USES``."""
    key: int
    """Sum of the count and the order's age at the last use."""


class LeastFrequentlyUsed(EvictionOrder):
    """The block with the lowest key is evicted first, and among equal keys the least recently used block.

    A block's key is the number of its uses plus the age of the order at its last use. The age is the key of the last
    evicted block. It grows as the cache turns over, until new blocks have higher keys than a formerly popular block.
    (LFU-DA: Arlitt et al., *Evaluating Content Management Techniques for Web Proxy Caches*, 2000.)

    Each key is between the order's age and the age plus ``MOST_USES``. So a ring of ``MOST_USES + 1`` elements stores
    the last block of each key, and the cost of a search does not depend on the number of blocks.
    """

    __slots__ = ("_age", "_last_with", "_uses")

    def __init__(self, links: Links, block_ids: Iterable[int] = ()) -> None:
        self._age = 0
        self._last_with = [links.end] * (MOST_USES + 1)
        """The last block with each key, indexed by the key modulo the length; the links' end if no block has the key.
        """
        self._uses: dict[int, Use] = {}
        """The notes created at the current age, by count."""
        super().__init__(links, block_ids)

    def keep(self, block_ids: Iterable[int]) -> int:
        noted, last_with = self.links.noted, self._last_with
        before = len(self)
        for block_id in block_ids:
            use = self._next_use(noted[block_id])
            self._insert(block_id, self._last_up_to(use.key))
            noted[block_id] = use
            last_with[use.key % len(last_with)] = block_id
        return len(self) - before

    def hit(self, block_ids: Iterable[int]) -> int:
        before = len(self)
        for block_id in block_ids:
            self._take(block_id)
        return before - len(self)

    def drop(self, block_ids: Iterable[int]) -> None:
        noted = self.links.noted
        for block_id in block_ids:
            noted[block_id] = None

    def evict(self, count: int) -> list[int]:
        evicted = self._take_first(count)
        noted, last_with = self.links.noted, self._last_with
        for block_id in evicted:
            key = noted[block_id].key
            noted[block_id] = None
            place = key % len(last_with)
            if last_with[place] == block_id:
                last_with[place] = self.links.end
            self._grow_to(key)
        return evicted

    def remove(self, block_id: int) -> None:
        self._take(block_id)
        self.links.noted[block_id] = None

    def _take(self, block_id: int) -> None:
        """Remove one block from the order, but keep the block's note."""
        if block_id not in self:
            raise KeyError(block_id)
        links, last_with = self.links, self._last_with
        key = links.noted[block_id].key
        place = key % len(last_with)
        if last_with[place] == block_id:
            earlier = links.before[block_id]
            last_with[place] = earlier if earlier != links.end and links.noted[earlier].key == key else links.end
        self._take_out([block_id])

    def _last_up_to(self, key: int) -> int:
        """Returns the last block with a key up to ``key``, or the links' end if there is no such block."""
        end, last_with = self.links.end, self._last_with
        for each in range(key, self._age - 1, -1):
            if (block_id := last_with[each % len(last_with)]) != end:
                return block_id
        return end

    def _next_use(self, note: object) -> Use:
        """Returns the note that replaces a block's ``note`` after one more use of the block."""
        count = note.count + 1 if isinstance(note, Use) and note.order is self else 1
        count = min(count, MOST_USES)
        use = self._uses.get(count)
        if use is None:
            use = self._uses[count] = Use(self, count, self._age + count)
        return use

    def _grow_to(self, age: int) -> None:
        if age != self._age:
            self._age = age
            self._uses.clear()

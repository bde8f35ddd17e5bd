"""Clock: a block that was hit since the hand last passed it gets a second chance, so that a prefix survives a scan."""

from collections.abc import Iterable

from tenantzone_runtime.zones.eviction_policies.order import EvictionOrder


class Clock(EvictionOrder):
    """The clock (second-chance) policy: a block is evicted when the hand reaches it, unless it was hit meanwhile.

    The order is a ring with its hand at the front. The block under the hand is evicted, unless it is marked as hit. A
    marked block loses the mark and stays until the hand's next round. The mark is a note that refers to the order.
    (Corbató, *A Paging Experiment with the Multics System*, 1968.)
    """

    __slots__ = ()

    def keep(self, block_ids: Iterable[int]) -> int:
        return self._append(block_ids)

    def hit(self, block_ids: Iterable[int]) -> int:
        hit = list(block_ids)
        count = self._take_out(hit)
        noted = self.links.noted
        for block_id in hit:
            noted[block_id] = self
        return count

    def drop(self, block_ids: Iterable[int]) -> None:
        noted = self.links.noted
        for block_id in block_ids:
            noted[block_id] = None

    def evict(self, count: int) -> list[int]:
        self._check_count(count)
        links = self.links
        before, after, end = links.before, links.after, links.end
        order_of, noted = links.order_of, links.noted
        evicted: list[int] = []
        block_id, last = self._first, self._last
        while len(evicted) < count:
            if noted[block_id] is self:
                noted[block_id] = None
                # Append the block before the hand continues, because the hand may be at the last block.
                before[block_id] = last
                after[last] = block_id
                last = block_id
                block_id = after[last]
                after[last] = end
            else:
                evicted.append(block_id)
                order_of[block_id] = None
                block_id = after[block_id]
        self._last = last
        self._begin_with(block_id)
        self.size -= count
        return evicted

    def first_until(self, moment: float, at_most: int, *, with_it: bool) -> int:
        # Stop at a marked block, because the block that is evicted in its place is known only after the eviction.
        links, block_id = self.links, self._first
        count = 0
        for _ in range(super().first_until(moment, at_most, with_it=with_it)):
            if links.noted[block_id] is self:
                return max(1, count)
            count += 1
            block_id = links.after[block_id]
        return count

    def remove(self, block_id: int) -> None:
        self._take_out([block_id])
        self.links.noted[block_id] = None

"""Replacement orders: in which order a zone's own cached blocks go when it has to give some up.

Both orders take the ids of blocks, and every operation costs the same however many blocks there are; evicting costs the
same per block, averaged over a life. The zones of an engine share one set of links, since a block is cached by one zone
at most: what the orders need in memory depends on the number of blocks, and not on who caches them or ever did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Links:
    """The links of the orders of all zones of one engine: which block stands before and after which.

    Lists, not arrays: they refer to the very numbers that they are given, so that reading makes no new ones.

    Args:
        block_count: block ids run from 0 to ``block_count - 1``.
    """

    __slots__ = ("after", "before", "end", "hit_in", "order_of")

    def __init__(self, block_count: int) -> None:
        self.end = block_count
        """Stands for both ends of an order. Its own links are those of the order that is being worked on."""
        self.before = [self.end] * (block_count + 1)
        self.after = [self.end] * (block_count + 1)
        self.order_of: list[LeastRecentlyUsed | None] = [None] * block_count
        """Where each block stands now; the links of one that stands nowhere mean nothing."""
        self.hit_in: list[Clock | None] = [None] * block_count
        """The order in which each block was hit; a mark of another order than the one it stands in means nothing."""


class LeastRecentlyUsed:
    """The LRU order, in which the block whose last request ended longest ago goes first, and is iterated over first.

    Args:
        links: of the engine; an order changes only those of blocks that stand in it.
        block_ids: what it starts with.
    """

    __slots__ = ("_count", "_first", "_last", "links")

    def __init__(self, links: Links, block_ids: Iterable[int] = ()) -> None:
        self.links = links
        self._first = self._last = links.end
        self._count = 0
        self.keep(block_ids)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, block_id: int) -> bool:
        return self.links.order_of[block_id] is self

    def __iter__(self) -> Iterator[int]:
        block_id = self._first
        while block_id != self.links.end:
            yield block_id
            block_id = self.links.after[block_id]

    def keep(self, block_ids: Iterable[int]) -> int:
        """Keep blocks that no request uses any more, for their prefixes; returns how many they are.

        Raises:
            KeyError: a block is kept already, in whichever order. Those before it are kept.
        """
        links = self.links
        before, after, order_of, end = links.before, links.after, links.order_of, links.end
        after[end], last = self._first, self._last
        count = 0
        try:
            for block_id in block_ids:
                if order_of[block_id] is not None:
                    raise KeyError(block_id)
                order_of[block_id] = self
                before[block_id] = last
                after[last] = block_id
                last = block_id
                count += 1
        finally:
            after[last] = end
            self._first, self._last = after[end], last
            self._count += count
        return count

    def hit(self, block_ids: Iterable[int]) -> int:
        """Take out blocks that a request uses again; returns how many they are.

        Raises:
            KeyError: a block is not in the order. Those before it are in use.
        """
        return self._take_out(block_ids)

    def drop(self, block_ids: Iterable[int]) -> None:
        """Note blocks that were in use and go without being kept."""

    def evict(self, count: int) -> list[int]:
        """Give up the next ``count`` blocks, and return their ids in order.

        Raises:
            KeyError: there are fewer; none is given up.
        """
        self._check_count(count)
        after, order_of = self.links.after, self.links.order_of
        evicted: list[int] = []
        block_id = self._first
        for _ in range(count):
            evicted.append(block_id)
            order_of[block_id] = None
            block_id = after[block_id]
        self._begin_with(block_id)
        self._count -= count
        return evicted

    def remove(self, block_id: int) -> None:
        """Give up one given block.

        Raises:
            KeyError: it is not in the order.
        """
        self._take_out([block_id])

    def clear(self) -> list[int]:
        """Take all blocks out, for another order, and return their ids in order."""
        block_ids = list(self)
        self._take_out(block_ids)
        return block_ids

    def _take_out(self, block_ids: Iterable[int]) -> int:
        links = self.links
        before, after, order_of, end = links.before, links.after, links.order_of, links.end
        after[end], before[end] = self._first, self._last
        count = 0
        try:
            for block_id in block_ids:
                if order_of[block_id] is not self:
                    raise KeyError(block_id)
                order_of[block_id] = None
                earlier, later = before[block_id], after[block_id]
                after[earlier] = later
                before[later] = earlier
                count += 1
        finally:
            self._first, self._last = after[end], before[end]
            self._count -= count
        return count

    def _begin_with(self, block_id: int) -> None:
        """Let the order begin with this block: what stood before it is gone."""
        links = self.links
        self._first = block_id
        links.before[block_id] = links.end
        if block_id == links.end:
            self._last = block_id

    def _check_count(self, count: int) -> None:
        if count > self._count:
            raise KeyError(f"{count} blocks are to be evicted, {self._count} are kept")


class Clock(LeastRecentlyUsed):
    """The second-chance order: a block hit since its last turn is passed over once, so that a prefix outlives a scan.

    The order is a ring, its hand at the front: a block under the hand goes, unless it is marked as hit; then it loses
    the mark and waits for the hand's next round. (Corbató, *A Paging Experiment with the Multics System*, 1968.)
    """

    __slots__ = ()

    def hit(self, block_ids: Iterable[int]) -> int:
        hit = list(block_ids)
        count = self._take_out(hit)
        hit_in = self.links.hit_in
        for block_id in hit:
            hit_in[block_id] = self
        return count

    def drop(self, block_ids: Iterable[int]) -> None:
        hit_in = self.links.hit_in
        for block_id in block_ids:
            hit_in[block_id] = None

    def evict(self, count: int) -> list[int]:
        self._check_count(count)
        links = self.links
        before, after, end = links.before, links.after, links.end
        order_of, hit_in = links.order_of, links.hit_in
        evicted: list[int] = []
        block_id, last = self._first, self._last
        while len(evicted) < count:
            if hit_in[block_id] is self:
                hit_in[block_id] = None
                # Behind the last one before the hand goes on: a block that is the last one itself comes next, too.
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
        self._count -= count
        return evicted

    def remove(self, block_id: int) -> None:
        super().remove(block_id)
        self.links.hit_in[block_id] = None

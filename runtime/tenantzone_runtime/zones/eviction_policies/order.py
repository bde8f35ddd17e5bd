"""The interface of eviction policies: an order in which a zone's own cached blocks are evicted.

An order contains ids of blocks. All operations take constant time per block (evictions: amortized). The zones of an
engine share one set of links, because each block is cached by at most one zone. So the orders' memory depends only on
the number of blocks, and not on the number of zones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any


class Links:
    """The links of the orders of all zones of one engine: the previous and the next block of each block.

    The attributes are lists and not arrays, because a list stores the int objects, so that reads create no new objects.

    Args:
        block_count: block ids run from 0 to ``block_count - 1``.
    """

    __slots__ = ("after", "before", "end", "noted", "order_of", "since")

    def __init__(self, block_count: int) -> None:
        self.end = block_count
        """Sentinel for both ends of an order. The order that is currently being changed uses the sentinel's links."""
        self.before = [self.end] * (block_count + 1)
        self.after = [self.end] * (block_count + 1)
        self.order_of: list[EvictionOrder | None] = [None] * block_count
        """The order that contains each block. The links of a block in no order are undefined."""
        self.since = [0.0] * block_count
        """Time at which a request last released each block, on the ledger's clock."""
        self.noted: list[Any] = [None] * block_count
        """The policy's note on each block, whether cached or in use. An order ignores notes that it did not write,
        because they may come from the zone's previous policy or from another zone."""


class EvictionOrder(ABC):
    """One zone's cached blocks, in the order of eviction. Iteration returns the blocks' ids in this order.

    A policy is a registered subclass. It decides where a kept block is placed (:meth:`keep`), how a hit changes the
    order, and which blocks are evicted. Each policy has its own kind of notes.

    Args:
        links: links of the engine. An order changes only the links of its own blocks.
        block_ids: ids of the initial blocks.
    """

    __slots__ = ("_first", "_last", "links", "size")

    def __init__(self, links: Links, block_ids: Iterable[int] = ()) -> None:
        self.links = links
        self._first = self._last = links.end
        self.size = 0
        """Number of blocks. This is an attribute, because a step reads it over a hundred times and `len` is slower."""
        self.keep(block_ids)

    def __len__(self) -> int:
        return self.size

    def __contains__(self, block_id: int) -> bool:
        return self.links.order_of[block_id] is self

    def __iter__(self) -> Iterator[int]:
        block_id = self._first
        while block_id != self.links.end:
            yield block_id
            block_id = self.links.after[block_id]

    @abstractmethod
    def keep(self, block_ids: Iterable[int]) -> int:
        """Add blocks that no request uses any more. Returns the number of added blocks.

        Raises:
            KeyError: a block is already in an order. The blocks before it were added.
        """

    @abstractmethod
    def hit(self, block_ids: Iterable[int]) -> int:
        """Remove blocks that a request uses again. Returns the number of removed blocks.

        Raises:
            KeyError: a block is not in the order. The blocks before it were removed.
        """

    @abstractmethod
    def drop(self, block_ids: Iterable[int]) -> None:
        """Delete the notes on blocks that were in use and will not be cached."""

    @abstractmethod
    def evict(self, count: int) -> list[int]:
        """Evict the next ``count`` blocks. Returns their ids in order.

        Raises:
            KeyError: the order has fewer blocks. No block is evicted.
        """

    @abstractmethod
    def remove(self, block_id: int) -> None:
        """Evict one given block.

        Raises:
            KeyError: the block is not in the order.
        """

    @property
    def first_since(self) -> float:
        """Time at which the next block to evict was released by its last request. The order must not be empty."""
        return self.links.since[self._first]

    def first_until(self, moment: float, at_most: int, *, with_it: bool) -> int:
        """Returns how many of the next blocks to evict were released before ``moment``.

        ``with_it`` includes blocks released exactly at this time. The result is at most ``at_most``. It is a lower
        bound, because some policies stop counting early.
        """
        since, after, end = self.links.since, self.links.after, self.links.end
        count, block_id = 0, self._first
        while (
            count < at_most
            and block_id != end
            and (since[block_id] < moment or (with_it and since[block_id] == moment))
        ):
            count += 1
            block_id = after[block_id]
        return count

    def clear(self) -> list[int]:
        """Remove all blocks, so that another order can replace this order. Returns the blocks' ids in order."""
        block_ids = list(self)
        self._take_out(block_ids)
        for block_id in block_ids:
            self.links.noted[block_id] = None
        return block_ids

    def _append(self, block_ids: Iterable[int]) -> int:
        """Append blocks at the end of the order. Returns their number; raises the same errors as :meth:`keep`."""
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
            self.size += count
        return count

    def _insert(self, block_id: int, earlier: int) -> None:
        """Insert a block right after the block ``earlier``, or first if ``earlier`` is the links' end.

        Raises:
            KeyError: the block is already in an order.
        """
        links = self.links
        before, after, end = links.before, links.after, links.end
        if links.order_of[block_id] is not None:
            raise KeyError(block_id)
        links.order_of[block_id] = self
        after[end], before[end] = self._first, self._last
        later = after[earlier]
        before[block_id], after[block_id] = earlier, later
        after[earlier] = before[later] = block_id
        self._first, self._last = after[end], before[end]
        self.size += 1

    def _take_out(self, block_ids: Iterable[int]) -> int:
        """Remove blocks from anywhere in the order. Returns their number; raises the same errors as :meth:`hit`."""
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
            self.size -= count
        return count

    def _take_first(self, count: int) -> list[int]:
        """Remove the first ``count`` blocks. Returns their ids in order; raises the same errors as :meth:`evict`."""
        self._check_count(count)
        after, order_of = self.links.after, self.links.order_of
        taken: list[int] = []
        block_id = self._first
        for _ in range(count):
            taken.append(block_id)
            order_of[block_id] = None
            block_id = after[block_id]
        self._begin_with(block_id)
        self.size -= count
        return taken

    def _begin_with(self, block_id: int) -> None:
        """Make a block the first of the order, after the caller has removed the blocks before it."""
        links = self.links
        self._first = block_id
        links.before[block_id] = links.end
        if block_id == links.end:
            self._last = block_id

    def _check_count(self, count: int) -> None:
        if count > self.size:
            raise KeyError(f"can't evict {count} blocks, because only {self.size} are cached")

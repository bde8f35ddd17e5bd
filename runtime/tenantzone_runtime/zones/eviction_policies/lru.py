"""LRU: the least recently used block is evicted first."""

from collections.abc import Iterable

from tenantzone_runtime.zones.eviction_policies.order import EvictionOrder


class LeastRecentlyUsed(EvictionOrder):
    """The block whose last request ended longest ago is evicted first. The policy stores no notes."""

    __slots__ = ()

    def keep(self, block_ids: Iterable[int]) -> int:
        return self._append(block_ids)

    def hit(self, block_ids: Iterable[int]) -> int:
        return self._take_out(block_ids)

    def drop(self, block_ids: Iterable[int]) -> None:
        pass

    def evict(self, count: int) -> list[int]:
        return self._take_first(count)

    def remove(self, block_id: int) -> None:
        self._take_out([block_id])

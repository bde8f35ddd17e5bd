"""The ages of a zone's cached blocks: when each block was last used, independent of the eviction policy."""

from collections.abc import Iterable
from itertools import islice, takewhile

from tenantzone_runtime.zones.eviction_policies.lru import LeastRecentlyUsed


class Ages(LeastRecentlyUsed):
    """A zone's cached blocks in LRU order, each with the time of its last use.

    The zone's TTL uses this order, which has its own links, because the eviction policy may order blocks differently.
    """

    __slots__ = ()

    def keep_since(self, block_ids: Iterable[int], moment: float) -> None:
        """Add blocks that a request has released at ``moment``. Calls must be in the order of their moments."""
        block_ids = list(block_ids)
        self._append(block_ids)
        noted = self.links.noted
        for block_id in block_ids:
            noted[block_id] = moment

    @property
    def oldest(self) -> float | None:
        """Time at which the least recently used block was last used; None if there are no blocks."""
        return self.links.noted[self._first] if len(self) else None

    def unused_for(self, seconds: float, now: float, at_most: int) -> list[int]:
        """Returns the least recently used blocks that were unused for ``seconds``, at most ``at_most`` of them."""
        noted = self.links.noted

        def is_old(block_id: int) -> bool:
            return bool(noted[block_id] + seconds <= now)

        return list(islice(takewhile(is_old, self), at_most))

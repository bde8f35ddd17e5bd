"""The age of a zone's cached blocks, for its ttl: when each was last used, independent of the eviction policy."""

from collections.abc import Iterable
from itertools import islice, takewhile

from tenantzone_runtime.zones.eviction_policies.lru import LeastRecentlyUsed


class Ages(LeastRecentlyUsed):
    """A zone's cached blocks, the one unused for longest first, each with the time of its last use.

    It has its own links: the eviction policy orders the same blocks differently.
    """

    __slots__ = ()

    def keep_since(self, block_ids: Iterable[int], moment: float) -> None:
        """Keep blocks that a request has released at ``moment``, which is not before that of any earlier call."""
        block_ids = list(block_ids)
        self._append(block_ids)
        noted = self.links.noted
        for block_id in block_ids:
            noted[block_id] = moment

    @property
    def oldest(self) -> float | None:
        """The time of the first block's last use; None: there is no block."""
        return self.links.noted[self._first] if len(self) else None

    def unused_for(self, seconds: float, now: float, at_most: int) -> list[int]:
        """Returns at most ``at_most`` of the first blocks that were unused for the given time."""
        noted = self.links.noted

        def is_old(block_id: int) -> bool:
            return bool(noted[block_id] + seconds <= now)

        return list(islice(takewhile(is_old, self), at_most))

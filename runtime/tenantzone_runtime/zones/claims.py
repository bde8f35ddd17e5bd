"""Claims: blocks that are kept in a step for requests within their zones' reservations, so that each is there once.

What a zone caches within its reservation nobody else can have: of its claims, so much need not be kept from others.
"""

from typing import Generic

from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.zone import Zone


class Claims(Generic[W]):
    """How many blocks are kept for which request, in one step."""

    def __init__(self) -> None:
        self._blocks: dict[W, int] = {}
        self._of_zone: dict[Zone, int] = {}
        self._from_others: dict[Zone, int] = {}
        self.total = 0
        """Kept from those that have no claim."""

    def keep(self, work: W, count: int) -> None:
        """Keep so many blocks for a request, instead of what was kept for it."""
        self._change(work.zone, count - self._blocks.get(work, 0))
        self._blocks[work] = count

    def drop(self, work: W) -> None:
        """It has its blocks, or does without. Harmless if none were kept for it."""
        count = self._blocks.pop(work, None)
        if count is not None:
            self._change(work.zone, -count)

    def of_others(self, work: W) -> int:
        """What is kept from this request: for other zones, and for others of its own."""
        of_others = self.total - self._from_others.get(work.zone, 0)
        return of_others + self._of_zone.get(work.zone, 0) - self._blocks.get(work, 0)

    def clear(self) -> None:
        """The step is over."""
        self._blocks.clear()
        self._of_zone.clear()
        self._from_others.clear()
        self.total = 0

    def _change(self, zone: Zone, more: int) -> None:
        claimed = self._of_zone[zone] = self._of_zone.get(zone, 0) + more
        from_others = max(0, claimed - (len(zone.cached) - zone.reclaimable))
        self.total += from_others - self._from_others.get(zone, 0)
        self._from_others[zone] = from_others

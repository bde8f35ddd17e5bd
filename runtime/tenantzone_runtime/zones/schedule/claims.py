"""Claims: blocks kept in a step for requests within their zones' reservations, so that no block is promised twice."""

from collections.abc import Iterable
from typing import Generic

from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.model.zone import Zone


class Claims(Generic[W]):
    """The blocks that are kept for requests in one step."""

    def __init__(self) -> None:
        self._blocks: dict[W, int] = {}
        self._of_zone: dict[Zone, int] = {}
        self._rough: dict[W, None] = {}
        self.total = 0

    def keep(self, work: W, count: int, *, is_rough: bool = False) -> None:
        """Keep ``count`` blocks for a request, replacing its earlier claim. ``is_rough``: whether it may need fewer."""
        self.drop(work)
        self._blocks[work] = count
        self._add(work.zone, count)
        if is_rough:
            self._rough[work] = None

    def drop(self, work: W) -> None:
        """Drop the claim of a request, if it has one, because it has got its blocks or does without them."""
        self._rough.pop(work, None)
        self._add(work.zone, -self._blocks.pop(work, 0))

    def pass_on(self, work: W, other: W) -> None:
        """Transfer the claim of a request, if it has one, to another request of the same zone."""
        if count := self._blocks.get(work, 0):
            self.drop(work)
            self.keep(other, count)

    def of(self, work: W) -> int:
        """Number of blocks that are kept for a request."""
        return self._blocks.get(work, 0)

    def of_others(self, zone: Zone) -> int:
        """Number of blocks that are kept for other zones."""
        return self.total - self._of_zone.get(zone, 0)

    def of_siblings(self, work: W) -> int:
        """Number of blocks that are kept for other requests of the same zone."""
        return self._of_zone.get(work.zone, 0) - self._blocks.get(work, 0)

    def take_rough(self) -> Iterable[W]:
        """Returns the requests with rough claims, which count as exact from now on unless the caller replaces them."""
        rough, self._rough = self._rough, {}
        return rough

    def clear(self) -> None:
        """Drop all claims at the end of a step."""
        self._blocks.clear()
        self._of_zone.clear()
        self._rough.clear()
        self.total = 0

    def _add(self, zone: Zone, count: int) -> None:
        if count:
            self._of_zone[zone] = self._of_zone.get(zone, 0) + count
            self.total += count

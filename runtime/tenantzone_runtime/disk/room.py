"""The slots of a disk to which a zone may write now: within its share, and without files that must be removed first."""

from tenantzone_runtime.disk.breaker import Breaker
from tenantzone_runtime.disk.catalog import Catalog
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.tier import Tier


class Room:
    """The room on one disk.

    Args:
        tier: the zones' shares of the disk.
        catalog: the contents of the disk.
        breaker: the breaker of writes.
    """

    def __init__(self, tier: Tier, catalog: Catalog, breaker: Breaker) -> None:
        self._tier = tier
        self._catalog = catalog
        self._breaker = breaker

    def for_some(self, zone: Zone, count: int, protected: list[int], now: float) -> list[int]:
        """Returns slots for at most ``count`` chunks, without evicting protected chunks."""
        if not self._may_write(zone, count, now):
            return []
        granted, given_up = self._tier.make_room(zone, count, protected)
        self._catalog.forget(given_up)
        slots = self._catalog.slots.take(granted)
        self._refuse_until_removed(zone, granted - len(slots))
        return slots

    def for_all(self, zone: Zone, count: int, there: list[int], now: float) -> list[int]:
        """Returns slots for all ``count`` missing chunks of a hit, or none; ``there`` has slots of its other chunks."""
        if not count or not self._may_write(zone, count, now):
            return []
        granted, given_up = self._tier.make_room(zone, count, there, whole=True)
        self._catalog.forget(given_up)
        slots = self._catalog.slots.take(granted)
        if len(slots) == count:
            return slots
        self._refuse_until_removed(zone, granted)
        self._catalog.slots.give_back(slots)
        return []

    def _may_write(self, zone: Zone, count: int, now: float) -> bool:
        """Returns whether a zone may write now; if not, ``count`` chunks are counted as refused."""
        if zone.leaving or zone.spec.retention.no_store:
            return False
        if self._catalog.is_open and self._breaker.allows(now) and not self._catalog.is_purging(zone):
            return True
        self._tier.counts_of(zone).refuse_writes("closed", count)
        return False

    def _refuse_until_removed(self, zone: Zone, count: int) -> None:
        """Count chunks as refused that can only be written after the files of a purge were removed."""
        self._tier.counts_of(zone).refuse_writes("closed", count)

"""Into which slots of a disk a zone may write now: within its share, and where what was removed is gone."""

from tenantzone_runtime.disk.breaker import Breaker
from tenantzone_runtime.disk.catalog import Catalog
from tenantzone_runtime.zones.tier import Tier
from tenantzone_runtime.zones.zone import Zone


class Room:
    """The room on one disk.

    Args:
        tier: the zones' shares.
        catalog: what is there.
        breaker: of writes.
    """

    def __init__(self, tier: Tier, catalog: Catalog, breaker: Breaker) -> None:
        self._tier = tier
        self._catalog = catalog
        self._breaker = breaker

    def for_some(self, zone: Zone, count: int, protected: list[int], now: float) -> list[int]:
        """Slots for up to so many chunks, none of which is made free of what is protected."""
        if not self._may_write(zone, count, now):
            return []
        granted, given_up = self._tier.make_room(zone, count, protected)
        self._catalog.forget(given_up)
        slots = self._catalog.slots.take(granted)
        self._refuse_until_removed(zone, granted - len(slots))
        return slots

    def for_all(self, zone: Zone, count: int, there: list[int], now: float) -> list[int]:
        """Slots for all that a hit lacks beside what is there, or none."""
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
        """Whether anything of a zone may be written now; if not, so many chunks count as refused."""
        if zone.leaving or zone.spec.retention.no_store:
            return False
        if self._catalog.is_open and self._breaker.allows(now) and not self._catalog.is_purging(zone):
            return True
        self._tier.counts_of(zone).refuse_writes("closed", count)
        return False

    def _refuse_until_removed(self, zone: Zone, count: int) -> None:
        """What a purge gave up has to be removed from the disk before these are written."""
        self._tier.counts_of(zone).refuse_writes("closed", count)

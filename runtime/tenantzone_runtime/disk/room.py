"""Finds the slots to which a zone may write now. They are within the zone's share of the disk."""

from tenantzone_runtime.disk.breaker import Breaker
from tenantzone_runtime.disk.catalog import Catalog
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.tier import Tier


class Room:
    """Grants slots for writes to one disk, and counts refused chunks.

    Args:
        tier: the zones' shares of the disk.
        catalog: the chunks on the disk.
        breaker: the circuit breaker of writes.
    """

    def __init__(self, tier: Tier, catalog: Catalog, breaker: Breaker) -> None:
        self._tier = tier
        self._catalog = catalog
        self._breaker = breaker

    def for_some(self, zone: Zone, count: int, protected: list[int], now: float) -> list[int]:
        """Returns slots for at most ``count`` chunks. Evicts chunks if needed, but never from ``protected`` slots."""
        if not self._may_write(zone, count, now):
            return []
        granted, given_up = self._tier.make_room(zone, count, protected)
        self._catalog.forget(given_up)
        slots = self._catalog.slots.take(granted)
        self._refuse_until_removed(zone, granted - len(slots))
        return slots

    def for_all(self, zone: Zone, count: int, there: list[int], now: float) -> list[int]:
        """Returns slots for all ``count`` missing chunks of a hit, or none. Never evicts the hit's slots ``there``."""
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
        """Returns whether a zone may write now. If the disk can't take writes, counts ``count`` chunks as refused."""
        if zone.leaving or zone.spec.retention.no_store:
            return False
        if self._catalog.is_open and self._breaker.allows(now) and not self._catalog.is_purging(zone):
            return True
        self._tier.counts_of(zone).refuse_writes("closed", count)
        return False

    def _refuse_until_removed(self, zone: Zone, count: int) -> None:
        """Count chunks as refused because no slot is free until the files of a purge are removed."""
        self._tier.counts_of(zone).refuse_writes("closed", count)

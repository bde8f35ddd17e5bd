"""Expiry: finds the cached blocks that have been unused for their zone's TTL and must be evicted.

The cost of checking a zone does not depend on its number of blocks, because each zone has a single deadline, which its
oldest block determines. A block in use has no age. Its age starts when the last request releases the block.
"""

from collections.abc import Iterator, Sequence

from tenantzone_runtime.zones.blocks.deadlines import Deadlines
from tenantzone_runtime.zones.eviction_policies.order import Links
from tenantzone_runtime.zones.model.ages import Ages
from tenantzone_runtime.zones.model.zone import Zone


class Expiry:
    """The ages of one engine's cached blocks, for zones with a TTL. Only the ledger changes them.

    Args:
        block_count: block ids run from 0 to ``block_count - 1``.
    """

    def __init__(self, block_count: int) -> None:
        self._block_count = block_count
        self._links: Links | None = None
        """Links for the ages, created with the first zone that has a TTL."""
        self._deadlines = Deadlines()

    def follow(self, zone: Zone, now: float) -> None:
        """Adopt the TTL of a zone's new spec.

        If the zone had no TTL before, its cached blocks count as last used when its last request ended, or now if the
        zone has requests.
        """
        if zone.spec.retention.ttl_seconds is None:
            if zone.ages is not None:
                zone.ages.clear()
                zone.ages = None
                self._deadlines.forget(zone)
        elif zone.ages is None:
            if self._links is None:
                self._links = Links(self._block_count)
            zone.ages = Ages(self._links)
            self.kept(zone, list(zone.cached), now if zone.requests else max(zone.last_active, zone.born))
        else:
            self._set(zone)

    def kept(self, zone: Zone, block_ids: Sequence[int], moment: float) -> None:
        """Note that the last request that used these blocks has released them."""
        if zone.ages is not None and block_ids:
            zone.ages.keep_since(block_ids, moment)
            self._set(zone)

    def used(self, zone: Zone, block_ids: Sequence[int]) -> None:
        """Note that cached blocks are in use again, or are not cached any more."""
        if zone.ages is not None:
            zone.ages.hit(block_ids)

    def expired(self, zone: Zone, now: float, at_most: int) -> list[int]:
        """Returns the expired blocks of the zone, at most ``at_most``."""
        ttl = zone.spec.retention.ttl_seconds
        return [] if zone.ages is None or ttl is None else zone.ages.unused_for(ttl, now, at_most)

    def gone_off(self, now: float) -> Iterator[Zone]:
        """Generate zones that may have expired blocks. A zone that keeps expired blocks is generated again later."""
        for zone in self._deadlines.pop_due(now):
            yield zone
            self._set(zone)

    def forget(self, zone: Zone) -> None:
        """Forget a removed zone."""
        self._deadlines.forget(zone)

    def _set(self, zone: Zone) -> None:
        """Set the zone's deadline to the expiry of its oldest block, unless it has an earlier one."""
        ttl = zone.spec.retention.ttl_seconds
        if zone.ages is None or ttl is None or (oldest := zone.ages.oldest) is None:
            return
        self._deadlines.set_at(zone, oldest + ttl)

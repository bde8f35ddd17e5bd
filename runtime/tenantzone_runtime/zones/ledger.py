"""Who owns which block, and the sums that make every question about it cheap.

A block is free, or owned by one zone: in use (some request refers to it) or cached (none does, its prefix is kept).
Each method is one transition; each keeps the sums, so that :meth:`Ledger.takeable` costs the same with one zone and
with a thousand.

Blocks of requests that came before any zone was declared have no owner here: to zones, what such requests use is gone
from the pool, and what they left cached is free.
"""

from collections.abc import Iterable

from tenantzone_contract.report import EvictionReason
from tenantzone_runtime.zones import quota
from tenantzone_runtime.zones.zone import Zone


class Ledger:
    """The block ownership of one engine.

    Args:
        block_count: block ids run from 0 to ``block_count - 1``.
    """

    def __init__(self, block_count: int) -> None:
        self.owner: list[Zone | None] = [None] * block_count
        self.zones: dict[str, Zone] = {}
        """By tenant. Zones that left the config stay here until their last block is free."""
        self.cached_blocks = 0
        self.held_blocks = 0
        self._locked = 0
        self._evictable = 0
        self._recallable = 0

    def add(self, zone: Zone) -> None:
        """Enter a zone that holds nothing yet."""
        assert zone.spec.tenant not in self.zones, "a tenant has one zone"
        assert zone.held == 0
        self.zones[zone.spec.tenant] = zone
        self.reckon(zone)

    def discard(self, zone: Zone) -> None:
        """Take out a zone that holds nothing any more."""
        assert zone.held == 0, "a zone leaves when its last block is free"
        assert zone.locked == 0, "a zone that leaves is promised nothing"
        del self.zones[zone.spec.tenant]

    def takeable(self, zone: Zone, free: int) -> int:
        """The most blocks that the zone may put to use in one go, if ``free`` blocks are free now."""
        return quota.takeable(
            zone.spec.quota,
            zone.in_use,
            len(zone.cached),
            grace=zone.grace,
            free=free,
            evictable_elsewhere=self._evictable - zone.evictable,
            recallable_elsewhere=self._recallable - zone.recallable,
            locked_elsewhere=self._locked - zone.locked,
        )

    def takeable_without_zone(self, free: int) -> int:
        """The same for a request that was there before any zone was declared: surplus only."""
        return max(0, free + self._evictable - self._locked)

    def take(self, zone: Zone, block_ids: Iterable[int]) -> None:
        """Free blocks become the zone's, in use."""
        owner = self.owner
        count = 0
        for block_id in block_ids:
            assert owner[block_id] is None, f"block {block_id} has an owner already"
            owner[block_id] = zone
            count += 1
        zone.in_use += count
        self.held_blocks += count
        self.reckon(zone)

    def reuse(self, zone: Zone, block_ids: Iterable[int]) -> None:
        """Cached blocks of the zone are in use again (a prefix hit)."""
        count = 0
        for block_id in block_ids:
            del zone.cached[block_id]
            count += 1
        zone.in_use += count
        self.cached_blocks -= count
        self.reckon(zone)

    def release(self, zone: Zone, kept: Iterable[int], dropped: Iterable[int]) -> None:
        """Blocks that the last request let go: ``kept`` for their prefix (as most recently used), ``dropped`` free."""
        kept_count = dropped_count = 0
        for block_id in kept:
            zone.cached[block_id] = None
            kept_count += 1
        for block_id in dropped:
            self.owner[block_id] = None
            dropped_count += 1
        zone.in_use -= kept_count + dropped_count
        assert zone.in_use >= 0, f"zone {zone.spec.tenant} releases more than it uses"
        self.cached_blocks += kept_count
        self.held_blocks -= dropped_count
        self.reckon(zone)

    def evict(self, zone: Zone, count: int, reason: EvictionReason) -> list[int]:
        """The zone's ``count`` least recently used cached blocks become free. Returns their ids."""
        block_ids = [zone.cached.popitem(last=False)[0] for _ in range(count)]
        self._count_evicted(zone, block_ids, reason)
        return block_ids

    def evict_block(self, zone: Zone, block_id: int, reason: EvictionReason) -> None:
        """One given cached block becomes free."""
        del zone.cached[block_id]
        self._count_evicted(zone, [block_id], reason)

    def _count_evicted(self, zone: Zone, block_ids: list[int], reason: EvictionReason) -> None:
        for block_id in block_ids:
            self.owner[block_id] = None
        count = len(block_ids)
        self.cached_blocks -= count
        self.held_blocks -= count
        evicted = zone.counters.evicted
        evicted[reason] = evicted.get(reason, 0) + count
        self.reckon(zone)

    def reckon(self, zone: Zone) -> None:
        """Bring the zone's part in the sums up to date. Call it after its spec or its quietness changed."""
        spec_quota, in_use, cached, quiet = zone.spec.quota, zone.in_use, len(zone.cached), zone.quiet
        locked = quota.locked(spec_quota, in_use + cached, quiet)
        evictable = quota.evictable(spec_quota, in_use, cached, quiet)
        recallable = quota.recallable(spec_quota, in_use, cached, quiet)
        self._locked += locked - zone.locked
        self._evictable += evictable - zone.evictable
        self._recallable += recallable - zone.recallable
        zone.locked, zone.evictable, zone.recallable = locked, evictable, recallable

    def check(self, free: int, in_use_without_zone: int, capacity: int) -> None:
        """Invariant I1, the slow way: every block is counted once, and the sums are what the parts add up to.

        Raises:
            AssertionError: the ledger is wrong.
        """
        owned: dict[Zone, int] = {}
        for owner in self.owner:
            if owner is not None:
                owned[owner] = owned.get(owner, 0) + 1
        for zone in self.zones.values():
            assert owned.pop(zone, 0) == zone.held, f"zone {zone.spec.tenant}: owners and counts differ"
            assert all(self.owner[block_id] is zone for block_id in zone.cached)
        assert not owned, "blocks are owned by a zone that is not in the ledger"
        zones = self.zones.values()
        assert self.held_blocks == sum(zone.held for zone in zones)
        assert self.cached_blocks == sum(len(zone.cached) for zone in zones)
        assert self._locked == sum(zone.locked for zone in zones)
        assert self._evictable == sum(zone.evictable for zone in zones)
        assert self._recallable == sum(zone.recallable for zone in zones)
        assert free + self.held_blocks + in_use_without_zone == capacity, "the counts do not add up to the capacity"

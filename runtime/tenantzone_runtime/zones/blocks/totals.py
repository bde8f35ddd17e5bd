"""The totals of all zones: sums that make queries about a single zone cheap.

With them, the cost of computing how many blocks a zone may take does not depend on the number of zones.
"""

from collections.abc import Collection
from math import inf
from typing import Literal

from tenantzone_runtime.zones.blocks.cache_victims import CacheVictims
from tenantzone_runtime.zones.blocks.victims import SumsByPriority
from tenantzone_runtime.zones.model import quota
from tenantzone_runtime.zones.model.parts import ALL
from tenantzone_runtime.zones.model.zone import Zone, ZoneSpec

Source = Literal["spare", "surplus"]
"""The source of blocks for a request. spare: blocks promised to no zone. surplus: spare blocks, and blocks that other
zones cache above their reservations."""


class Totals:
    """Sums over zones.

    Args:
        capacity: number of blocks of the engine.
        lends_cache: whether quiet zones also lend blocks cached within their reservations, down to their floors.
    """

    def __init__(self, capacity: int, *, lends_cache: bool = True) -> None:
        self.capacity = capacity
        self._lends_cache = lends_cache
        self.seats = 0
        """Number of requests that the engine can run at once; set by the arbiter before there is a config."""
        self.seats_reserved = 0
        """Number of seats that zones reserve explicitly, and not by their blocks."""
        self._active_weight = 0
        """Sum of the weights of all zones that are not quiet."""
        self.promised = 0
        """Sum of all reservations, in blocks."""
        self.surplus = 0
        """Number of blocks that zones hold above their reservations."""
        self.evictable = 0
        """Number of cached blocks that quiet zones give up (S2)."""
        self._locked = 0
        self._reclaimable = 0
        self._kept = 0
        """Number of reserved blocks that zones never lend: the sum of all zones' floors if all zones were quiet."""
        self._withheld = SumsByPriority()
        self._never_lent = SumsByPriority()
        """Number of reserved blocks that zones lend, but not to zones of a lower priority."""
        self._to_reconsider: dict[Zone, None] = {}
        self.victims = CacheVictims()
        """Zones in the order in which they give up cached blocks."""
        self.changes = 0
        """Number of changes so far."""
        self.spec_changes = 0
        """Number of changes of zones' specs so far."""
        self.with_targets: dict[Zone, None] = {}
        """Zones with latency targets."""
        self._changed: dict[Zone, None] = {}

    @property
    def changed(self) -> int:
        """Number of zones that were added, removed or changed since `take_changed` last returned them."""
        return len(self._changed)

    def take_changed(self, at_most: int = ALL) -> list[Zone]:
        """Returns and clears the zones that were added, removed or changed since the last call."""
        if at_most < len(self._changed):
            return [self._changed.popitem()[0] for _ in range(at_most)]
        changed, self._changed = self._changed, {}
        return list(changed)

    def _note_change(self, zone: Zone) -> None:
        self._changed[zone] = None
        self.changes += 1

    def enter(self, zone: Zone) -> None:
        """Count a new zone."""
        self.promised += zone.spec.quota.reserved
        self.seats_reserved += zone.spec.seats.reserved or 0
        self._kept += quota.floor(zone.spec.quota, quiet=True)
        self._never_lent.add(zone.spec.priority, _lent_to_none_below(zone))
        if zone.spec.latency:
            self.with_targets[zone] = None
        self.reckon(zone)

    def leave(self, zone: Zone) -> None:
        """Stop counting a zone."""
        self.promised -= zone.spec.quota.reserved
        self.seats_reserved -= zone.spec.seats.reserved or 0
        self._kept -= quota.floor(zone.spec.quota, quiet=True)
        self._never_lent.add(zone.spec.priority, -_lent_to_none_below(zone))
        self._withheld.add(zone.spec.priority, -zone.withheld)
        self._locked -= zone.locked
        self.evictable -= zone.evictable
        self._reclaimable -= zone.reclaimable
        self.surplus -= zone.surplus
        self._active_weight -= zone.active_weight
        zone.active_weight = 0
        zone.locked = zone.evictable = zone.evictable_by_all = zone.reclaimable = zone.withheld = zone.surplus = 0
        self.victims.remove(zone)
        self.with_targets.pop(zone, None)
        self._to_reconsider.pop(zone, None)
        self._note_change(zone)

    def change_spec(self, zone: Zone, spec: ZoneSpec) -> None:
        """Replace the zone's spec; its blocks stay."""
        self.leave(zone)
        zone.follow(spec)
        self.enter(zone)
        self.spec_changes += 1
        # Reconsider the zone even if it has not backed off: its next request may be entitled to the new reservation.
        self.reconsider(zone)

    def reckon(self, zone: Zone) -> None:
        """Update the zone's part of the totals, after its blocks or its quietness have changed."""
        cached, quiet = zone.cached.size, zone.quiet
        locked, surplus, evictable, reclaimable = quota.parts(
            zone.spec.quota, zone.in_use, cached, quiet, self._lends_cache
        )
        self._locked += locked - zone.locked
        self.evictable += evictable - zone.evictable
        self._reclaimable += reclaimable - zone.reclaimable
        self.surplus += surplus - zone.surplus
        zone.locked, zone.evictable, zone.reclaimable, zone.surplus = locked, evictable, reclaimable, surplus
        if zone.backoff_ticket and zone.has_better_prospects:
            self.reconsider(zone)
        self._note_change(zone)
        if quiet or zone.withheld or zone.evictable_by_all:
            self._reckon_offer(zone)
        if quiet == (zone.active_weight > 0):
            weight = 0 if quiet else zone.spec.weight
            self._active_weight += weight - zone.active_weight
            zone.active_weight = weight
        self.victims.update(zone)

    def reconsider(self, zone: Zone) -> None:
        """Note that something has changed for the zone, so that a denied request may be admissible now."""
        self._to_reconsider[zone] = None

    @property
    def to_reconsider(self) -> Collection[Zone]:
        """The zones that `take_to_reconsider` would return."""
        return self._to_reconsider.keys()

    def take_to_reconsider(self) -> list[Zone]:
        """Returns and clears the zones for which something has changed, so that denied requests may be admissible."""
        taken, self._to_reconsider = self._to_reconsider, {}
        return list(taken)

    def was_active(self, zone: Zone) -> None:
        """Move the zone behind the other zones of its priority, because it was active just now."""
        self.reckon(zone)
        self.victims.was_active(zone)

    def _reckon_offer(self, zone: Zone) -> None:
        """Update the numbers of blocks that the zone offers to all borrowers and to some of them."""
        withheld = 0
        zone.evictable_by_all = zone.evictable
        if zone.quiet and zone.spec.lending.borrowers != "AnyPriority":
            withheld = quota.offered(zone.spec.quota, zone.in_use, len(zone.cached), self._lends_cache)
            zone.evictable_by_all = min(zone.evictable, zone.surplus)
        self._withheld.add(zone.spec.priority, withheld - zone.withheld)
        zone.withheld = withheld
        self.victims.update_for_all(zone)

    def total(self, source: Source, priority: int, free: int) -> int:
        """Returns the blocks available to zones of a priority, without the requesting zone's own contribution.

        Args:
            source: source of the blocks.
            priority: priority of the zones.
            free: number of blocks that are free now.
        """
        of_others = self.evictable if source == "spare" else self._reclaimable
        return free + of_others - self._locked - self._withheld.above(priority)

    def reachable(self, zone: Zone, peak: int = 0) -> int:
        """Returns the most blocks that the zone can ever use at once, if all other zones are quiet.

        Args:
            zone: the zone.
            peak: number of blocks that the waiting request uses when it is longest.
        """
        promise = zone.spec.quota
        kept = self._kept - quota.floor(promise, quiet=True) + self._never_lent.above(zone.spec.priority)
        return min(max(promise.limit, peak), max(promise.reserved, self.capacity - kept))

    def spare(self, zone: Zone, free: int) -> int:
        """Returns the number of spare blocks for the zone if ``free`` blocks are free. It may be negative."""
        return quota.spare(
            zone.cached.size,
            free=free,
            evictable_elsewhere=self.evictable - zone.evictable,
            locked_elsewhere=self._locked - zone.locked,
            withheld_elsewhere=self._withheld.above(zone.spec.priority),
        )

    def takeable(
        self, zone: Zone, free: int, *, growing: bool = False, peak: int = 0, claimed: int = 0, let_go: int = 0
    ) -> int:
        """Returns the most blocks that the zone may start to use now.

        Args:
            zone: the zone.
            free: number of blocks that are free now, or are counted as free.
            growing: whether the request is running. A running request may also take blocks that other zones cache above
                their reservations, and continues until the grace period of a loan is over.
            peak: number of blocks that the request uses when it is longest.
            claimed: number of blocks kept for requests of other zones within their reservations. They do not reduce the
                zone's spare blocks.
            let_go: number of blocks that the zone still uses but that ``free`` includes.
        """
        spare, in_use = self.spare(zone, free), zone.in_use - let_go
        if growing:
            spare += self.surplus_cached_elsewhere(zone)
        takeable = quota.takeable(
            zone.spec.quota,
            in_use,
            zone.cached.size,
            peak=peak,
            free=free,
            reclaimable_elsewhere=self._reclaimable - zone.reclaimable - claimed,
            spare=spare,
        )
        # A zone with overdue blocks gets no blocks above its reservation.
        if zone.overdue and not growing:
            return min(takeable, max(0, zone.spec.quota.reserved - in_use))
        return takeable

    def may_reclaim_surplus(self, zone: Zone, count: int, peak: int) -> bool:
        """Whether a denied request of the zone may get blocks that active zones cache above their reservations.

        It may if the zone uses no blocks, or stays within its share of the unreserved blocks.
        """
        promise = zone.spec.quota
        if zone.overdue or zone.in_use + count > max(promise.limit, peak):
            return False
        return zone.in_use == 0 or zone.in_use + count <= promise.reserved + self.share(zone)

    def surplus_to_reclaim(self, zone: Zone, count: int, free: int, peak: int) -> int:
        """Returns how many blocks must be evicted from other zones so that a denied request of the zone gets ``count``.

        It is 0 if the request may not have these blocks, or would still not get enough.
        """
        if not self.may_reclaim_surplus(zone, count, peak):
            return 0
        short = count - self.spare(zone, free)
        return short if short <= self.surplus_cached_elsewhere(zone) else 0

    def share(self, zone: Zone) -> int:
        """Returns the zone's share of the unreserved blocks, by weight among the zones that are not quiet."""
        return (self.capacity - self.promised) * zone.spec.weight // max(self._active_weight, zone.spec.weight)

    @property
    def share_of_one(self) -> float:
        """The share of the unreserved blocks for a weight of 1, not rounded."""
        return (self.capacity - self.promised) / self._active_weight if self._active_weight else inf

    def surplus_cached_elsewhere(self, zone: Zone) -> int:
        """Returns the blocks that other active zones keep cached above their reservations."""
        return self._reclaimable - self.evictable - (zone.reclaimable - zone.evictable)

    def check(self, zones: list[Zone]) -> None:
        """Check that the sums are right.

        Raises:
            AssertionError: a sum is wrong.
        """
        assert self._active_weight == sum(zone.spec.weight for zone in zones if not zone.quiet)
        assert self.promised == sum(zone.spec.quota.reserved for zone in zones)
        assert self.surplus == sum(zone.surplus for zone in zones)
        assert self._locked == sum(zone.locked for zone in zones)
        assert self.evictable == sum(zone.evictable for zone in zones)
        assert self._reclaimable == sum(zone.reclaimable for zone in zones)
        assert self._withheld.total == sum(zone.withheld for zone in zones)
        assert self._never_lent.total == sum(map(_lent_to_none_below, zones))
        assert self._kept == sum(quota.floor(zone.spec.quota, quiet=True) for zone in zones)


def _lent_to_none_below(zone: Zone) -> int:
    return zone.spec.quota.lendable if zone.spec.lending.borrowers == "SameOrHigherPriority" else 0

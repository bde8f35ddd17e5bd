"""Where all zones stand together: the sums and orders that make a question about one zone cheap.

With them, asking what a zone may take costs the same with one zone and with a thousand, and the next victim is found
without looking at all zones.
"""

from tenantzone_runtime.zones import quota
from tenantzone_runtime.zones.victims import SumsByPriority, VictimOrder
from tenantzone_runtime.zones.zone import Zone, ZoneSpec

DEFAULT_PRIORITY = 0
"""Of requests that came before any zone was declared."""


class Standings:
    """Sums over zones, and zones in the order in which they give up blocks.

    Args:
        capacity: blocks of the engine.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._active_weight = 0
        """Of all zones that are not quiet."""
        self.promised = 0
        """All reservations."""
        self.surplus = 0
        """All that zones hold above their reservations."""
        self.evictable = 0
        """All that quiet zones give up (S1)."""
        self._locked = 0
        self._recallable = 0
        self._withheld = SumsByPriority()
        self._quiet = VictimOrder()
        self._quiet_for_all = VictimOrder()
        self._above_reservation = VictimOrder()
        self._changed: set[Zone] = set()

    def take_changed(self) -> set[Zone]:
        """Zones that have come, left or changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def enter(self, zone: Zone) -> None:
        """Count a zone that is new."""
        self.promised += zone.spec.quota.reserved
        self.reckon(zone)

    def leave(self, zone: Zone) -> None:
        """Count a zone no more."""
        self.promised -= zone.spec.quota.reserved
        self._withheld.add(zone.spec.priority, -zone.withheld)
        self._locked -= zone.locked
        self.evictable -= zone.evictable
        self._recallable -= zone.recallable
        self.surplus -= zone.surplus
        self._active_weight -= zone.active_weight
        zone.active_weight = 0
        zone.locked = zone.evictable = zone.evictable_by_all = zone.recallable = zone.withheld = zone.surplus = 0
        for order in (self._quiet, self._quiet_for_all, self._above_reservation):
            order.remove(zone)
        self._changed.add(zone)

    def respec(self, zone: Zone, spec: ZoneSpec) -> None:
        """Give the zone another spec; what it holds stays."""
        self.leave(zone)
        zone.follow(spec)
        self.enter(zone)

    def reckon(self, zone: Zone) -> None:
        """Bring the zone's part up to date, after what it holds or its quietness changed."""
        promise, in_use, cached, quiet = zone.spec.quota, zone.in_use, len(zone.cached), zone.quiet
        locked = quota.locked(promise, in_use + cached, quiet)
        surplus = quota.surplus(promise, in_use + cached)
        evictable = quota.evictable(promise, in_use, cached) if quiet else 0
        recallable = quota.recallable(cached, surplus, evictable)
        self._locked += locked - zone.locked
        self.evictable += evictable - zone.evictable
        self._recallable += recallable - zone.recallable
        self.surplus += surplus - zone.surplus
        zone.locked, zone.evictable, zone.recallable, zone.surplus = locked, evictable, recallable, surplus
        self._changed.add(zone)
        if quiet or zone.withheld or zone.evictable_by_all:
            self._reckon_offer(zone)
        if quiet == (zone.active_weight > 0):
            weight = 0 if quiet else zone.spec.weight
            self._active_weight += weight - zone.active_weight
            zone.active_weight = weight
        # Most changes leave a zone in the orders where it is.
        if (evictable > 0) != (zone in self._quiet.members):
            self._quiet.toggle(zone)
        if (recallable > 0 and not quiet) != (zone in self._above_reservation.members):
            self._above_reservation.toggle(zone)

    def was_active(self, zone: Zone) -> None:
        """The zone's last activity is now: it comes after others of its priority."""
        self.reckon(zone)
        for order in (self._quiet, self._quiet_for_all, self._above_reservation):
            order.move(zone)

    def _reckon_offer(self, zone: Zone) -> None:
        """What the zone offers to those who may borrow from it, and to whom."""
        withheld = 0
        zone.evictable_by_all = zone.evictable
        if zone.quiet and not zone.spec.loans.to_any_priority:
            withheld = quota.offered(zone.spec.quota, zone.in_use, len(zone.cached))
            zone.evictable_by_all = min(zone.evictable, zone.surplus)
        self._withheld.add(zone.spec.priority, withheld - zone.withheld)
        zone.withheld = withheld
        if (zone.evictable_by_all > 0) != (zone in self._quiet_for_all.members):
            self._quiet_for_all.toggle(zone)

    def spare(self, zone: Zone | None, free: int) -> int:
        """Blocks that are nobody's promise, for this zone, if ``free`` blocks are free; may be negative.

        None is for a request from before any zone was declared.
        """
        if zone is None:
            withheld = self._withheld.above(DEFAULT_PRIORITY)
            return quota.spare(
                0,
                free=free,
                evictable_elsewhere=self.evictable,
                locked_elsewhere=self._locked,
                withheld_elsewhere=withheld,
            )
        return quota.spare(
            len(zone.cached),
            free=free,
            evictable_elsewhere=self.evictable - zone.evictable,
            locked_elsewhere=self._locked - zone.locked,
            withheld_elsewhere=self._withheld.above(zone.spec.priority),
        )

    def takeable(self, zone: Zone | None, free: int, *, growing: bool = False) -> int:
        """The most blocks that the zone may put to use in one go; None gets no more than what is spare.

        Args:
            growing: for a request that runs. It counts more than what others merely cache above their reservations.
        """
        spare = self.spare(zone, free)
        if growing:
            spare += self.surplus_cached_elsewhere(zone)
        if zone is None:
            return max(0, spare)
        takeable = quota.takeable(
            zone.spec.quota,
            zone.in_use,
            len(zone.cached),
            grace=zone.grace,
            free=free,
            recallable_elsewhere=self._recallable - zone.recallable,
            spare=spare,
        )
        # Who owes blocks that are due gets no more than what is its own.
        return min(takeable, max(0, zone.spec.quota.reserved - zone.in_use)) if zone.overdue else takeable

    def share(self, zone: Zone) -> int:
        """The zone's share, by weight among those that are not quiet, of the blocks that nobody reserved."""
        return (self._capacity - self.promised) * zone.spec.weight // max(self._active_weight, zone.spec.weight)

    def surplus_cached_elsewhere(self, zone: Zone | None) -> int:
        """What other active zones keep cached above their reservations."""
        own = 0 if zone is None else zone.recallable - zone.evictable
        return self._recallable - self.evictable - own

    def quiet_victim(self, borrower_priority: int | None) -> tuple[Zone, int] | None:
        """The next quiet zone to evict from (S1), with the most blocks that it gives.

        Args:
            borrower_priority: of a zone that borrows; None for blocks that are not borrowed.
        """
        if borrower_priority is None:
            zone = self._quiet.first()
            return None if zone is None else (zone, zone.evictable)
        zone = self._quiet.first_up_to(borrower_priority)
        if zone is not None:
            return zone, zone.evictable
        zone = self._quiet_for_all.first_above(borrower_priority)
        return None if zone is None else (zone, zone.evictable_by_all)

    def surplus_victim(self, beneficiary: Zone | None) -> tuple[Zone, int] | None:
        """The next zone with cached blocks above its reservation (S1b), with the most that it gives."""
        zone = self._above_reservation.first(excluding=beneficiary)
        return None if zone is None else (zone, zone.recallable)

    def check(self, zones: list[Zone]) -> None:
        """The sums are what the parts add up to.

        Raises:
            AssertionError: they are not.
        """
        assert self._active_weight == sum(zone.spec.weight for zone in zones if not zone.quiet)
        assert self.promised == sum(zone.spec.quota.reserved for zone in zones)
        assert self.surplus == sum(zone.surplus for zone in zones)
        assert self._locked == sum(zone.locked for zone in zones)
        assert self.evictable == sum(zone.evictable for zone in zones)
        assert self._recallable == sum(zone.recallable for zone in zones)
        assert self._withheld.total == sum(zone.withheld for zone in zones)

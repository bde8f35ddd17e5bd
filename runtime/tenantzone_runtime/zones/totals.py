"""The totals of all zones together: the sums and orders that make a query about one zone cheap.

With them, computing what a zone may take costs the same with one zone and with a thousand, and the next victim is found
without considering all zones.
"""

from math import inf
from typing import Literal

from tenantzone_runtime.zones import quota
from tenantzone_runtime.zones.parts import ALL
from tenantzone_runtime.zones.victims import Rank, SumsByPriority, VictimOrder, by_age
from tenantzone_runtime.zones.zone import Zone, ZoneSpec

Source = Literal["spare", "surplus"]
"""The source of blocks for a request. spare: blocks promised to no zone. surplus: these, and blocks that
other zones cache above their reservations."""


class Totals:
    """Sums over zones, and zones in the order in which they give up blocks.

    Args:
        capacity: blocks of the engine.
        lends_cache: whether quiet zones also lend what they cache within their reservations, down to their floors.
    """

    def __init__(self, capacity: int, *, lends_cache: bool = True) -> None:
        self.capacity = capacity
        self._lends_cache = lends_cache
        self.seats = 0
        """Requests that the engine can run at once; set by the arbiter before there is a config."""
        self.seats_reserved = 0
        """The seats among these that zones reserve by name, and not by their blocks."""
        self._active_weight = 0
        """The sum over all zones that are not quiet."""
        self.promised = 0
        """The sum of all reservations."""
        self.surplus = 0
        """The sum of what zones hold above their reservations."""
        self.evictable = 0
        """The sum of what quiet zones give up (S2)."""
        self._locked = 0
        self._reclaimable = 0
        self._kept = 0
        """The part of their reservations that zones keep even while they are quiet."""
        self._withheld = SumsByPriority()
        self._never_lent = SumsByPriority()
        """The part that zones lend, but to no zone of a lower priority."""
        self._to_reconsider: dict[Zone, None] = {}
        self._quiet = VictimOrder()
        self._quiet_for_all = VictimOrder()
        self._surplus_of_active = VictimOrder(by_age)
        self._surplus_of_quiet = VictimOrder(by_age)
        self.changes = 0
        """A counter of changes."""
        self.spec_changes = 0
        """A counter of changes of zones' specs."""
        self.with_targets: dict[Zone, None] = {}
        """Zones with latency targets."""
        self._changed: dict[Zone, None] = {}

    @property
    def changed(self) -> int:
        """The number of zones added, removed or changed since they were last taken."""
        return len(self._changed)

    def take_changed(self, at_most: int = ALL) -> list[Zone]:
        """Remove and return zones that were added, removed or changed since they were last taken."""
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
        for order in (self._quiet, self._quiet_for_all, self._surplus_of_active, self._surplus_of_quiet):
            order.remove(zone)
        self.with_targets.pop(zone, None)
        self._to_reconsider.pop(zone, None)
        self._note_change(zone)

    def change_spec(self, zone: Zone, spec: ZoneSpec) -> None:
        """Give the zone another spec; what it holds stays."""
        self.leave(zone)
        zone.follow(spec)
        self.enter(zone)
        self.spec_changes += 1
        # Backed off or not: its next request may be entitled to the new reservation.
        self.reconsider(zone)

    def reckon(self, zone: Zone) -> None:
        """Update the zone's part, after what it holds or its quietness changed."""
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
        # Most changes leave a zone's places in the orders unchanged.
        if (evictable > 0) != (zone in self._quiet.members):
            self._quiet.toggle(zone)
        caches_surplus = surplus > 0 and cached > 0
        own, other = self._surplus_of_active, self._surplus_of_quiet
        if quiet:
            own, other = other, own
        if caches_surplus or zone in own.members:
            own.put(zone, caches_surplus)
        if zone in other.members:
            other.remove(zone)

    def reconsider(self, zone: Zone) -> None:
        """Note that something changed for the zone: if its next request was denied, it may be admissible now."""
        self._to_reconsider[zone] = None

    def take_to_reconsider(self) -> list[Zone]:
        """Remove and return the zones whose next request was denied and for which something has changed since."""
        taken, self._to_reconsider = self._to_reconsider, {}
        return list(taken)

    def was_active(self, zone: Zone) -> None:
        """Move the zone behind others of its priority, since its last activity is now."""
        self.reckon(zone)
        for order in (self._quiet, self._quiet_for_all):
            order.move(zone)

    def _reckon_offer(self, zone: Zone) -> None:
        """Update what the zone offers to borrowers, and to which of them."""
        withheld = 0
        zone.evictable_by_all = zone.evictable
        if zone.quiet and zone.spec.lending.borrowers != "AnyPriority":
            withheld = quota.offered(zone.spec.quota, zone.in_use, len(zone.cached), self._lends_cache)
            zone.evictable_by_all = min(zone.evictable, zone.surplus)
        self._withheld.add(zone.spec.priority, withheld - zone.withheld)
        zone.withheld = withheld
        if (zone.evictable_by_all > 0) != (zone in self._quiet_for_all.members):
            self._quiet_for_all.toggle(zone)

    def total(self, source: Source, priority: int, free: int) -> int:
        """The blocks left to all zones of a priority together, without what each adds of its own.

        Args:
            source: of the blocks.
            priority: whose.
            free: blocks that are free now.
        """
        of_others = self.evictable if source == "spare" else self._reclaimable
        return free + of_others - self._locked - self._withheld.above(priority)

    def reachable(self, zone: Zone, peak: int = 0) -> int:
        """The most blocks that the zone can ever use at once, when all others are quiet.

        Args:
            zone: whose.
            peak: of the waiting request.
        """
        promise = zone.spec.quota
        kept = self._kept - quota.floor(promise, quiet=True) + self._never_lent.above(zone.spec.priority)
        return min(max(promise.limit, peak), max(promise.reserved, self.capacity - kept))

    def spare(self, zone: Zone, free: int) -> int:
        """Blocks promised to no zone, as seen by this zone, with ``free`` free blocks; may be negative."""
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
        """The most blocks that the zone may start to use at once.

        Args:
            zone: whose.
            free: blocks that are free now, or are counted as if they were.
            growing: for a running request. It counts more than what others merely cache above their reservations, and
                continues until the grace of a loan is over.
            peak: of the request, at its longest.
            claimed: blocks kept for others that are within their reservations, too. Blocks that are spare for the zone
                are not among them.
            let_go: the blocks among those that the zone uses that are counted as free.
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
        # A zone that owes due blocks gets no more than its own.
        if zone.overdue and not growing:
            return min(takeable, max(0, zone.spec.quota.reserved - in_use))
        return takeable

    def may_reclaim_surplus(self, zone: Zone, count: int, peak: int) -> bool:
        """Whether a denied request of the zone may have what active zones cache above their reservations.

        It may if its zone uses no block, or up to its share of the unreserved blocks.
        """
        promise = zone.spec.quota
        if zone.overdue or zone.in_use + count > max(promise.limit, peak):
            return False
        return zone.in_use == 0 or zone.in_use + count <= promise.reserved + self.share(zone)

    def surplus_to_reclaim(self, zone: Zone, count: int, free: int, peak: int) -> int:
        """The blocks that others' caches must give up so that a denied request of the zone gets ``count``.

        It is 0 if the request may not have them, or would not get enough.
        """
        if not self.may_reclaim_surplus(zone, count, peak):
            return 0
        short = count - self.spare(zone, free)
        return short if short <= self.surplus_cached_elsewhere(zone) else 0

    def share(self, zone: Zone) -> int:
        """The zone's share of the unreserved blocks, by weight among the zones that are not quiet."""
        return (self.capacity - self.promised) * zone.spec.weight // max(self._active_weight, zone.spec.weight)

    @property
    def share_of_one(self) -> float:
        """The share of a zone with weight 1, if it were not rounded down."""
        return (self.capacity - self.promised) / self._active_weight if self._active_weight else inf

    def surplus_cached_elsewhere(self, zone: Zone) -> int:
        """The blocks that other active zones keep cached above their reservations."""
        return self._reclaimable - self.evictable - (zone.reclaimable - zone.evictable)

    def quiet_victim(self, borrower_priority: int | None) -> tuple[Zone, int] | None:
        """The next quiet zone to evict from (S2), with the most blocks that it gives; else None.

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

    def surplus_victim(self, beneficiary: Zone | None, *, quiet: bool = False) -> tuple[Zone, int] | None:
        """The next zone that caches above its reservation, with the most that it gives; else None.

        Args:
            beneficiary: a zone to skip; None: no zone.
            quiet: whether to consider quiet zones, or active ones.
        """
        order = self._surplus_of_quiet if quiet else self._surplus_of_active
        zone = order.first(excluding=beneficiary)
        return None if zone is None else (zone, min(zone.surplus, zone.cached.size))

    def oldest_surplus(self, beneficiary: Zone, *, of_active: bool) -> tuple[Zone, int] | None:
        """Returns whose cache above a reservation is evicted next (S0), and how much before another zone's; else None.

        Args:
            beneficiary: that needs blocks; its own surplus is included.
            of_active: whether the surplus of other active zones is included, too.
        """
        active = self._surplus_of_active
        ranks = active.first_two() if of_active else []
        if not of_active and beneficiary in active.members:
            ranks.append((active.members[beneficiary], beneficiary))
        if self._surplus_of_quiet.members:
            ranks += self._surplus_of_quiet.first_two()
            ranks.sort(key=_by_rank)
        if not ranks:
            return None
        (priority, _, number), zone = ranks[0]
        count = min(zone.surplus, len(zone.cached))
        if len(ranks) > 1 and count > 1:
            (next_priority, moment, next_number), _ = ranks[1]
            if next_priority == priority:
                count = zone.cached.first_until(moment, count, with_it=number < next_number)
        return zone, count

    def check(self, zones: list[Zone]) -> None:
        """Check that the sums are right.

        Raises:
            AssertionError: they are not.
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


def _by_rank(ranked: tuple[Rank, Zone]) -> Rank:
    return ranked[0]


def _lent_to_none_below(zone: Zone) -> int:
    return zone.spec.quota.lendable if zone.spec.lending.borrowers == "SameOrHigherPriority" else 0

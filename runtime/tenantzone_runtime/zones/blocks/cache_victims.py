"""Whose cached blocks are evicted next: those of quiet zones that lend, or of zones that hold more than reserved."""

from tenantzone_runtime.zones.blocks.victims import Rank, VictimOrder, by_age
from tenantzone_runtime.zones.model.zone import Zone


class CacheVictims:
    """The zones that can give up cached blocks, in several orders."""

    def __init__(self) -> None:
        self._quiet = VictimOrder()
        """All quiet zones that lend cached blocks, at least to borrowers that do not have a lower priority."""
        self._quiet_for_all = VictimOrder()
        """Quiet zones that lend cached blocks to borrowers of any priority."""
        self._surplus_of_active = VictimOrder(by_age)
        self._surplus_of_quiet = VictimOrder(by_age)

    def update(self, zone: Zone) -> None:
        """Update the zone's places in the orders, except the order of `update_for_all`, after the zone has changed."""
        # Check first, because most changes do not affect a zone's places in the orders.
        if (zone.evictable > 0) != (zone in self._quiet.members):
            self._quiet.toggle(zone)
        caches_surplus = zone.surplus > 0 and zone.cached.size > 0
        own, other = self._surplus_of_active, self._surplus_of_quiet
        if zone.quiet:
            own, other = other, own
        if caches_surplus or zone in own.members:
            own.put(zone, caches_surplus)
        if zone in other.members:
            other.remove(zone)

    def update_for_all(self, zone: Zone) -> None:
        """Update whether the zone lends blocks to borrowers of any priority."""
        if (zone.evictable_by_all > 0) != (zone in self._quiet_for_all.members):
            self._quiet_for_all.toggle(zone)

    def was_active(self, zone: Zone) -> None:
        """Move the zone behind the other quiet zones of its priority, because it was active just now."""
        self._quiet.move(zone)
        self._quiet_for_all.move(zone)

    def remove(self, zone: Zone) -> None:
        """Remove a zone."""
        for order in (self._quiet, self._quiet_for_all, self._surplus_of_active, self._surplus_of_quiet):
            order.remove(zone)

    def quiet(self, borrower_priority: int | None) -> tuple[Zone, int] | None:
        """Returns the next quiet zone to evict from (S2), and how many blocks it gives up. None if there is no zone.

        Args:
            borrower_priority: priority of the zone that borrows the blocks; None if the blocks are not borrowed.
        """
        if borrower_priority is None:
            zone = self._quiet.first()
            return None if zone is None else (zone, zone.evictable)
        zone = self._quiet.first_up_to(borrower_priority)
        if zone is not None:
            return zone, zone.evictable
        zone = self._quiet_for_all.first_above(borrower_priority)
        return None if zone is None else (zone, zone.evictable_by_all)

    def surplus(self, beneficiary: Zone | None, *, quiet: bool = False) -> tuple[Zone, int] | None:
        """Returns the next zone that caches blocks above its reservation, with their number; None if there is none.

        Args:
            beneficiary: a zone to skip, if any.
            quiet: whether to consider quiet zones; if false, active zones.
        """
        order = self._surplus_of_quiet if quiet else self._surplus_of_active
        zone = order.first(excluding=beneficiary)
        return None if zone is None else (zone, min(zone.surplus, zone.cached.size))

    def oldest_surplus(self, beneficiary: Zone, *, of_active: bool) -> tuple[Zone, int] | None:
        """Returns the zone whose cached surplus is evicted next (S0), and the number of blocks to evict from it.

        After these blocks, it may be another zone's turn. Returns None if no zone has such blocks.

        Args:
            beneficiary: the zone that needs blocks. Its own surplus is included.
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


def _by_rank(ranked: tuple[Rank, Zone]) -> Rank:
    return ranked[0]

"""Eviction: whose cached blocks go when blocks are needed and too few are free.

The order, for a zone that may take what it asks for:

- limit: if it would hold more than its limit, its own blocks pay the difference;
- S0 (own, quiet, reclaim): what is cached above reservations, of the lowest priority first, then what was let go first.
  It is the zone's own and quiet zones', and everybody's for a zone within its reservation. So cached surplus is shared
  by all as one LRU cache, and no zone's grows at the cost of what others use more;
- S1 (own): what is left of its own blocks, in the order of its eviction policy;
- S2 (quiet): zones past their idle window, lowest priority first, then least recently active, down to their floor.
  A zone that borrows takes from a reservation only where it may borrow from it. It comes last: what a quiet zone caches
  within its reservation is lent to requests, and never to another zone's cache;
- then, for a request that runs and grows above the reservation, what other zones cache above theirs (relief): work in
  progress counts more than an unreserved cache. A request that waits gets it by :func:`relieve` only.

When these do not give enough, what is left is in use (see ``preemption``). Background eviction (watermark) takes what
is cached above reservations.

In a tier all blocks are cache. So what a zone holds there within its reservation goes for no other zone, quiet or not.
"""

from collections.abc import Callable, Iterable

from tenantzone_contract.report import EvictionReason
from tenantzone_runtime.zones import quota
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.parts import ALL
from tenantzone_runtime.zones.zone import Zone

Evictions = list[tuple[Zone, list[int]]]
"""Ids of evicted blocks with their former owners, in order. They are free as far as the ledger goes."""


def make_room(ledger: Ledger, zone: Zone, count: int, free: int) -> Evictions:
    """Evict so that ``count`` blocks are free for a zone that may take them, as the caller has asked the ledger.

    Args:
        ledger: who owns what.
        zone: who needs the blocks.
        count: new blocks needed; hits on the zone's own cache are in use already and not among them.
        free: blocks that are free now.
    """
    evicted: Evictions = []
    if (over := zone.held + count - zone.spec.quota.limit) > 0:
        evicted.append((zone, ledger.evict(zone, min(over, len(zone.cached)), "limit", zone)))
        free += len(evicted[0][1])
    short = count - free
    if short <= 0:
        return evicted
    entitled = zone.is_entitled_to(count)
    short -= _evict_oldest_surplus(ledger, evicted, short, zone, of_active=entitled)
    if short > 0:
        evicted.append((zone, ledger.evict(zone, min(short, len(zone.cached)), "own", zone)))
        short -= len(evicted[-1][1])
    if short > 0 and ledger.totals.evictable:
        short -= _evict_quiet(ledger, evicted, short, zone, None if entitled else zone.spec.priority)
    if short > 0:
        _evict_surplus(ledger, evicted, short, "relief", zone)
    return evicted


def make_room_to_hold(ledger: Ledger, zone: Zone, count: int, free: int) -> tuple[int, Evictions]:
    """Make room for as many of ``count`` blocks as a zone may hold more, or in place of its own cached ones.

    For a tier whose blocks are all cache: there a zone is entitled by what it *holds*, where an engine's is by what its
    requests use, and no request waits for it. Up to the reservation: what is free, and what others hold above their
    reservations, quiet zones first. Above it: what is spare, what quiet zones hold above their reservations, and up to
    the zone's share of unreserved blocks what active zones hold above theirs (relief). What is left goes in place of
    the zone's own (S1), as far as what others have locked stays obtainable. No other zone loses what it holds within
    its reservation.

    Returns:
        The number of blocks the zone may take now, all free by then, and what was evicted for them.
    """
    evicted: Evictions = []
    promise = zone.spec.quota
    within = min(count, quota.unused(promise, zone.held))
    if (short := within - free) > 0:
        given = _evict_surplus(ledger, evicted, short, "quiet", zone, quiet=True)
        given += _evict_surplus(ledger, evicted, short - given, "reclaim", zone)
        free += given
        within = min(within, free)
    free, left = free - within, count - within
    above, relief = _growth_above(ledger, zone, min(left, promise.limit - zone.held - within), within, free)
    if relief:
        free += _evict_surplus(ledger, evicted, relief, "relief", zone)
    if above > free:
        free += _evict_surplus(ledger, evicted, above - free, "quiet", zone, quiet=True)
    above = min(above, free)
    spare = ledger.totals.spare(zone, free) - above
    in_place = max(0, min(left - above, len(zone.cached), spare))
    if in_place:
        # One for one: what the zone holds does not grow, even where some blocks are free.
        evicted.append((zone, ledger.evict(zone, in_place, "own", zone)))
    return within + above + in_place, evicted


def most_to_hold(ledger: Ledger, zone: Zone, count: int, free: int) -> int:
    """How many of ``count`` blocks :func:`make_room_to_hold` could make room for, were nothing in transfer.

    A caller that needs all of them asks this first, so that no block is evicted in vain.
    """
    promise = zone.spec.quota
    within = min(count, quota.unused(promise, zone.held))
    free, left = max(0, free - within), count - within
    above, _ = _growth_above(ledger, zone, min(left, promise.limit - zone.held - within), within, free)
    spare = ledger.totals.spare(zone, free) - above
    return within + above + max(0, min(left - above, len(zone.cached), spare))


def _growth_above(ledger: Ledger, zone: Zone, count: int, within: int, free: int) -> tuple[int, int]:
    """How many of ``count`` blocks a zone may hold above its reservation, and how many of them by relief.

    Args:
        ledger: all zones.
        zone: which one.
        count: blocks.
        within: those that it takes before that.
        free: further free blocks.
    """
    if count <= 0 or zone.overdue:
        return 0, 0
    totals = ledger.totals
    spare = totals.spare(zone, free) - len(zone.cached)
    to_share = zone.spec.quota.reserved + totals.share(zone) - zone.held - within
    relieved = min(count, to_share, spare + totals.surplus_cached_elsewhere(zone))
    growth = max(0, min(count, spare), relieved)
    return growth, max(0, growth - spare) if growth else 0


def evict_to_watermark(ledger: Ledger, count: int) -> Evictions:
    """Evict up to ``count`` blocks that are cached above reservations, because few blocks are free."""
    evicted: Evictions = []
    short = count - _evict_surplus(ledger, evicted, count, "watermark", None, quiet=True)
    _evict_surplus(ledger, evicted, short, "watermark", None)
    return evicted


def evict_surplus_for(ledger: Ledger, zone: Zone, count: int, free: int, peak: int = 0) -> Evictions:
    """Evict for a request that is denied ``count`` blocks because active zones cache them above their reservations.

    An active zone's cache is not just anybody's surplus. But a zone that uses no block must get its request through, or
    zones could wait for each other's caches for ever; and up to its share of the unreserved blocks, by
    weight, a zone need not wait for others' caches either. Nothing is evicted where it would not be enough.
    """
    evicted: Evictions = []
    _evict_surplus(ledger, evicted, ledger.totals.relief(zone, count, free, peak), "relief", zone)
    return evicted


def cover_loans(
    ledger: Ledger, borrower: Zone, count: int, covers: Callable[[Zone], int], takes_over: Callable[[Zone], bool]
) -> Evictions:
    """Evict what other zones cache, so that ``count`` blocks less of a borrower's are on loans that are due.

    That comes before its requests yield, since work in progress counts more than an unreserved cache.
    First goes what is cached above reservations; only where that is of no use, what quiet zones cache of a reservation
    that they lend. Else a request that was given such blocks would yield again and again for a lender who wants its own
    back, while they stay cached.

    Args:
        ledger: all zones.
        borrower: whose loans.
        count: blocks.
        covers: how many blocks above a zone's reservation go to the borrower if it lets them go.
        takes_over: whether a zone lends the borrower for some time what it lets go of its reservation.
    """
    others = [zone for zone in ledger.zones.values() if zone is not borrower and zone.reclaimable]
    others.sort(key=lambda zone: (not zone.quiet, zone.spec.priority, zone.last_active, zone.number))
    evicted: Evictions = []
    for zone in others:
        blocks = min(count, zone.surplus, len(zone.cached), covers(zone))
        if blocks > 0:
            evicted.append((zone, ledger.evict(zone, blocks, "due", borrower)))
            count -= blocks
        if not count:
            break
    return evicted or _evict_what_is_lent(ledger, borrower, count, filter(takes_over, others))


def _evict_what_is_lent(ledger: Ledger, borrower: Zone, count: int, lenders: Iterable[Zone]) -> Evictions:
    """Evict what these zones cache within their reservations and lend, which what is above them has to go before."""
    evicted: Evictions = []
    for zone in lenders:
        within = min(count, zone.evictable - zone.surplus)
        if within > 0:
            evicted.append((zone, ledger.evict(zone, zone.surplus + within, "due", borrower)))
            count -= within
        if not count:
            break
    return evicted


def trim_to_limit(ledger: Ledger, zone: Zone, at_once: int = ALL) -> list[int]:
    """Evict what a zone keeps cached beyond its limit, ``at_once`` blocks at most, and return their ids.

    It is called after the spec changed or blocks came back. A zone that stores nothing keeps nothing.
    """
    if zone.spec.retention.no_store:
        return ledger.evict(zone, min(len(zone.cached), at_once), "no_store") if zone.cached else []
    over = min(zone.held - zone.spec.quota.limit, len(zone.cached), at_once)
    return ledger.evict(zone, over, "limit") if over > 0 else []


def _evict_oldest_surplus(ledger: Ledger, evicted: Evictions, short: int, zone: Zone, *, of_active: bool) -> int:
    """Evict what is cached above reservations (S0), and return how many blocks that gave."""
    given, victims = 0, Evictions()
    while given < short and (oldest := ledger.totals.oldest_surplus(zone, of_active=of_active)) is not None:
        victim, max_blocks = oldest
        reason: EvictionReason = "own" if victim is zone else "quiet" if victim.quiet else "reclaim"
        blocks = ledger.evict(victim, min(short - given, max_blocks), reason, zone)
        given += len(blocks)
        if victims and victims[-1][0] is victim:
            victims[-1][1].extend(blocks)
        else:
            victims.append((victim, blocks))
    evicted += victims
    return given


def _evict_quiet(
    ledger: Ledger, evicted: Evictions, short: int, beneficiary: Zone, borrower_priority: int | None
) -> int:
    """Evict from quiet zones (S2), and return how many blocks that gave."""
    return _evict_in_turn(
        ledger, evicted, short, "quiet", beneficiary, lambda: ledger.totals.quiet_victim(borrower_priority)
    )


def _evict_surplus(
    ledger: Ledger,
    evicted: Evictions,
    short: int,
    reason: EvictionReason,
    beneficiary: Zone | None,
    *,
    quiet: bool = False,
) -> int:
    """Evict what other zones cache above their reservations, and return how many blocks that gave.

    Args:
        ledger: all zones.
        evicted: gets what went.
        short: the most blocks that go.
        reason: as it is counted.
        beneficiary: the zone that needs the blocks; None: no zone does.
        quiet: whether quiet zones pay, or those that are not.
    """
    return _evict_in_turn(
        ledger, evicted, short, reason, beneficiary, lambda: ledger.totals.surplus_victim(beneficiary, quiet=quiet)
    )


def _evict_in_turn(
    ledger: Ledger,
    evicted: Evictions,
    short: int,
    reason: EvictionReason,
    beneficiary: Zone | None,
    next_victim: Callable[[], tuple[Zone, int] | None],
) -> int:
    given = 0
    while given < short and (victim := next_victim()) is not None:
        zone, max_blocks = victim
        evicted.append((zone, ledger.evict(zone, min(short - given, max_blocks), reason, beneficiary)))
        given += len(evicted[-1][1])
    return given

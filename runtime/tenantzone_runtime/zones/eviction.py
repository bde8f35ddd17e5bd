"""Eviction: whose cached blocks are evicted when too few blocks are free.

The order, for a zone that may take the blocks that it needs:

- limit: if it would hold more than its limit, its own blocks pay the difference;
- S0 (own, quiet, reclaim): blocks cached above reservations, of the lowest priority first, then those released first.
  They are those of the zone itself and of quiet zones, and of all zones if the zone is within its reservation. So all
  zones share cached surplus as one LRU cache, and none grows at the cost of blocks that others use more;
- S1 (own): the rest of its own blocks, in the order of its eviction policy;
- S2 (quiet): zones past their idle window, lowest priority first, then least recently active, down to their floor. A
  borrower takes from a reservation only where it may borrow from it. It comes last: what a quiet zone caches within its
  reservation is lent to requests, and never to another zone's cache;
- then, for a running request that grows above the reservation, blocks cached by others above theirs (surplus reclaim):
  running work counts more than an unreserved cache. A waiting request gets these only by :func:`evict_surplus_for`.

If these do not give enough, the other blocks are in use (see ``preemption``). Background eviction (watermark) takes
blocks cached above reservations.

In a tier all blocks are cache. So what a zone holds there within its reservation is evicted for no other zone, quiet or
not.
"""

from collections.abc import Callable, Iterable

from tenantzone_contract.report import EvictionReason
from tenantzone_runtime.zones import quota
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.parts import ALL
from tenantzone_runtime.zones.zone import Zone

Evictions = list[tuple[Zone, list[int]]]
"""Ids of evicted blocks with their former owners, in order. The ledger counts them as free."""


def make_room(ledger: Ledger, zone: Zone, count: int, free: int) -> Evictions:
    """Evict so that ``count`` blocks are free for a zone that may take them; the caller has asked the ledger.

    Args:
        ledger: of all zones.
        zone: that needs the blocks.
        count: new blocks needed; hits on the zone's own cache are in use already and do not count.
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
    """Make room for as many of ``count`` blocks as a zone may hold in addition, or in place of its own cached ones.

    For a tier, whose blocks are all cache: there a zone is entitled by what it *holds*, where an engine's is by what
    its requests use, and no request waits for it. Up to the reservation it gets free blocks, and those that others hold
    above their reservations, quiet zones first. Above it, it gets spare blocks, those that quiet zones hold above their
    reservations, and surplus reclaim: up to the zone's share of unreserved blocks, those that active zones hold above
    theirs.
    The rest replaces the zone's own blocks (S1), as far as blocks that others have locked stay obtainable. No other
    zone loses what it holds within its reservation.

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
    above, reclaimed = _growth_above(ledger, zone, min(left, promise.limit - zone.held - within), within, free)
    if reclaimed:
        free += _evict_surplus(ledger, evicted, reclaimed, "relief", zone)
    if above > free:
        free += _evict_surplus(ledger, evicted, above - free, "quiet", zone, quiet=True)
    above = min(above, free)
    spare = ledger.totals.spare(zone, free) - above
    in_place = max(0, min(left - above, len(zone.cached), spare))
    if in_place:
        # One for one: the zone's total does not grow, even if some blocks are free.
        evicted.append((zone, ledger.evict(zone, in_place, "own", zone)))
    return within + above + in_place, evicted


def most_to_hold(ledger: Ledger, zone: Zone, count: int, free: int) -> int:
    """How many of ``count`` blocks :func:`make_room_to_hold` could make room for if nothing were in transfer.

    A caller that needs all of them calls this first, so that no block is evicted in vain.
    """
    promise = zone.spec.quota
    within = min(count, quota.unused(promise, zone.held))
    free, left = max(0, free - within), count - within
    above, _ = _growth_above(ledger, zone, min(left, promise.limit - zone.held - within), within, free)
    spare = ledger.totals.spare(zone, free) - above
    return within + above + max(0, min(left - above, len(zone.cached), spare))


def _growth_above(ledger: Ledger, zone: Zone, count: int, within: int, free: int) -> tuple[int, int]:
    """Returns how many of ``count`` blocks a zone may hold above its reservation, and the part from surplus reclaim.

    Args:
        ledger: all zones.
        zone: that needs the blocks.
        count: blocks.
        within: blocks that it takes within its reservation before.
        free: further free blocks.
    """
    if count <= 0 or zone.overdue:
        return 0, 0
    totals = ledger.totals
    spare = totals.spare(zone, free) - len(zone.cached)
    to_share = zone.spec.quota.reserved + totals.share(zone) - zone.held - within
    with_surplus = min(count, to_share, spare + totals.surplus_cached_elsewhere(zone))
    growth = max(0, min(count, spare), with_surplus)
    return growth, max(0, growth - spare) if growth else 0


def evict_to_watermark(ledger: Ledger, count: int) -> Evictions:
    """Evict up to ``count`` blocks that are cached above reservations, because few blocks are free."""
    evicted: Evictions = []
    short = count - _evict_surplus(ledger, evicted, count, "watermark", None, quiet=True)
    _evict_surplus(ledger, evicted, short, "watermark", None)
    return evicted


def evict_surplus_for(ledger: Ledger, zone: Zone, count: int, free: int, peak: int = 0) -> Evictions:
    """Evict for a request that is denied ``count`` blocks because active zones cache them above their reservations.

    Usually an active zone's cache is not surplus for others. But a zone that uses no block must get its request
    through, or zones could wait for each other's caches forever; and up to its share of the unreserved blocks, by
    weight, a zone need not wait for others' caches either. Nothing is evicted if it would not be enough.
    """
    evicted: Evictions = []
    _evict_surplus(ledger, evicted, ledger.totals.surplus_to_reclaim(zone, count, free, peak), "relief", zone)
    return evicted


def cover_loans(
    ledger: Ledger, borrower: Zone, count: int, covers: Callable[[Zone], int], takes_over: Callable[[Zone], bool]
) -> Evictions:
    """Evict what other zones cache, so that ``count`` blocks less of a borrower's are on loans that are due.

    That happens before its requests are preempted, since running work counts more than an unreserved cache. First
    blocks cached above reservations are evicted; only if that does not help, blocks that quiet zones cache within a
    lent reservation. Otherwise a request with such blocks would be preempted repeatedly for a lender that wants its own
    back, while they stay cached.

    Args:
        ledger: all zones.
        borrower: whose loans.
        count: blocks.
        covers: how many blocks evicted above a zone's reservation go to the borrower.
        takes_over: whether a zone lends the borrower the blocks evicted from its reservation for some time.
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
    """Evict lent blocks that these zones cache within their reservations, and first what is above these."""
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
    """Evict what a zone keeps cached beyond its limit, at most ``at_once`` blocks, and return their ids.

    It is called after the spec changed or blocks came back. A zone that stores nothing keeps nothing.
    """
    if zone.spec.retention.no_store:
        return ledger.evict(zone, min(len(zone.cached), at_once), "no_store") if zone.cached else []
    over = min(zone.held - zone.spec.quota.limit, len(zone.cached), at_once)
    return ledger.evict(zone, over, "limit") if over > 0 else []


def _evict_oldest_surplus(ledger: Ledger, evicted: Evictions, short: int, zone: Zone, *, of_active: bool) -> int:
    """Evict blocks cached above reservations (S0), and return their number."""
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
    """Evict from quiet zones (S2), and return the number of blocks."""
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
    """Evict what other zones cache above their reservations, and return the number of blocks.

    Args:
        ledger: all zones.
        evicted: gets the evicted blocks.
        short: the most blocks to evict.
        reason: for the counters.
        beneficiary: the zone that needs the blocks; None: no zone does.
        quiet: whether to evict from quiet zones, or from active ones.
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

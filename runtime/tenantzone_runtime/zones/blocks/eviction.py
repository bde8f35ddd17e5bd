"""Eviction: which zones' cached blocks are evicted when too few blocks are free.

The order, for a zone that may take the blocks that it needs:

- limit: if the zone would hold more than its limit, the excess is evicted from its own cached blocks;
- S0 (own, quiet, reclaim): blocks cached above reservations, lowest priority first, then least recently released. They
  are taken from the zone itself and from quiet zones, and from all zones if the zone is within its reservation. So all
  zones share cached surplus as one LRU cache, and no zone grows at the cost of blocks that others use more often;
- S1 (own): the rest of the zone's own cached blocks, in the order of its eviction policy;
- S2 (quiet): blocks of zones past their idle window, lowest priority first, then least recently active, down to their
  floor. A borrower gets reserved blocks only from zones that lend to it. S2 comes last, so that blocks that a quiet
  zone caches within its reservation are lent only to requests, and never to another zone's cache;
- surplus reclaim: for a running request that grows above the reservation, blocks that other zones cache above their
  reservations, because running work counts more than an unreserved cache. A waiting request gets such blocks only by
  :func:`evict_surplus_for`.

If this is not enough, all other blocks are in use (see ``preemption``). Background eviction (watermark) evicts blocks
cached above reservations.

In a tier, all blocks are cache, so blocks that a zone holds there within its reservation are never evicted for another
zone, even while the zone is quiet.
"""

from collections.abc import Callable, Iterable

from tenantzone_contract.reports.words import EvictionReason
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.model import quota
from tenantzone_runtime.zones.model.parts import ALL
from tenantzone_runtime.zones.model.zone import Zone

Evictions = list[tuple[Zone, list[int]]]
"""Evicted blocks: zones, each with the ids of blocks evicted from it, in order. The ledger counts them as free."""


def make_room(ledger: Ledger, zone: Zone, count: int, free: int) -> Evictions:
    """Evict blocks so that ``count`` blocks are free for a zone. The caller has checked that the zone may take them.

    Args:
        ledger: ledger with all zones.
        zone: the zone that needs the blocks.
        count: number of new blocks needed. Hits on the zone's own cache are in use already and do not count.
        free: number of blocks that are free now.
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
    """Make room for up to ``count`` new blocks of a zone, which may replace some of its own cached blocks.

    This is for tiers, whose blocks are all cache. There, the blocks that a zone *holds* count towards its reservation
    (in an engine: those that its requests use), and no request waits for blocks. Up to its reservation, the zone gets
    free blocks, and blocks that other zones hold above their reservations, quiet zones first. Above its reservation, it
    gets spare blocks, blocks that quiet zones hold above their reservations, and, up to the zone's share of unreserved
    blocks, blocks that active zones hold above their reservations (surplus reclaim). The rest replaces the zone's own
    blocks (S1), as long as blocks that other zones have locked stay obtainable. No other zone loses blocks that it
    holds within its reservation.

    Returns:
        The number of blocks that the zone may take now, all of them free, and the blocks that were evicted.
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
        # Evict one block for each new one, even if some blocks are free, so that the zone's total does not grow.
        evicted.append((zone, ledger.evict(zone, in_place, "own", zone)))
    return within + above + in_place, evicted


def most_to_hold(ledger: Ledger, zone: Zone, count: int, free: int) -> int:
    """Returns for how many of ``count`` blocks :func:`make_room_to_hold` could make room if nothing were in transfer.

    A caller that needs all ``count`` blocks calls this first, so that no block is evicted in vain.
    """
    promise = zone.spec.quota
    within = min(count, quota.unused(promise, zone.held))
    free, left = max(0, free - within), count - within
    above, _ = _growth_above(ledger, zone, min(left, promise.limit - zone.held - within), within, free)
    spare = ledger.totals.spare(zone, free) - above
    return within + above + max(0, min(left - above, len(zone.cached), spare))


def _growth_above(ledger: Ledger, zone: Zone, count: int, within: int, free: int) -> tuple[int, int]:
    """Returns how many of ``count`` blocks a zone may hold above its reservation, and how many are reclaimed surplus.

    Args:
        ledger: ledger with all zones.
        zone: the zone that needs the blocks.
        count: number of blocks.
        within: number of blocks that the zone takes first, within its reservation.
        free: number of free blocks, not counting ``within``.
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
    """Few blocks are free, so evict up to ``count`` blocks that are cached above reservations."""
    evicted: Evictions = []
    short = count - _evict_surplus(ledger, evicted, count, "watermark", None, quiet=True)
    _evict_surplus(ledger, evicted, short, "watermark", None)
    return evicted


def evict_surplus_for(ledger: Ledger, zone: Zone, count: int, free: int, peak: int = 0) -> Evictions:
    """Evict blocks for a request that was denied ``count`` blocks because active zones cache these as surplus.

    Usually, an active zone keeps its cached surplus. There are two exceptions. The request of a zone without blocks in
    use must be admitted, or zones could wait for each other's caches forever. And a zone need not wait for other zones'
    caches up to its share of the unreserved blocks, by weight. Nothing is evicted if the request would still be denied.
    """
    evicted: Evictions = []
    _evict_surplus(ledger, evicted, ledger.totals.surplus_to_reclaim(zone, count, free, peak), "relief", zone)
    return evicted


def cover_loans(
    ledger: Ledger, borrower: Zone, count: int, covers: Callable[[Zone], int], takes_over: Callable[[Zone], bool]
) -> Evictions:
    """Evict blocks that other zones cache, so that a borrower has ``count`` fewer blocks on due loans.

    This is tried before the borrower's requests are preempted, because running work counts more than an unreserved
    cache. First, blocks cached above reservations are evicted. Only if that does not help, blocks that quiet zones
    cache within a lent reservation are evicted. Otherwise the borrower's requests could be preempted again and again
    for their lender, while such blocks stay cached.

    Args:
        ledger: ledger with all zones.
        borrower: the borrower of the loans.
        count: number of blocks.
        covers: returns for a zone how many of its blocks above its reservation, if evicted, reduce the due loans.
        takes_over: returns whether a zone lends the borrower, for some time, what is evicted within its reservation.
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
    """Evict from each lender the blocks cached above its reservation, and then lent blocks cached within it."""
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
    """Evict blocks that a zone keeps cached beyond its limit, at most ``at_once``, and return their ids.

    To be called after the zone's spec has changed or its requests have released blocks. A zone with ``no_store`` keeps
    no cached blocks.
    """
    if zone.spec.retention.no_store:
        return ledger.evict(zone, min(len(zone.cached), at_once), "no_store") if zone.cached else []
    over = min(zone.held - zone.spec.quota.limit, len(zone.cached), at_once)
    return ledger.evict(zone, over, "limit") if over > 0 else []


def _evict_oldest_surplus(ledger: Ledger, evicted: Evictions, short: int, zone: Zone, *, of_active: bool) -> int:
    """Evict blocks cached above reservations (S0), and return their number."""
    given, victims = 0, Evictions()
    while given < short and (oldest := ledger.totals.victims.oldest_surplus(zone, of_active=of_active)) is not None:
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
        ledger, evicted, short, "quiet", beneficiary, lambda: ledger.totals.victims.quiet(borrower_priority)
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
    """Evict blocks that other zones cache above their reservations, and return their number.

    Args:
        ledger: ledger with all zones.
        evicted: list to which the evicted blocks are appended.
        short: maximum number of blocks to evict.
        reason: reason for the counters.
        beneficiary: the zone that needs the blocks; None if no zone does.
        quiet: whether to evict from quiet zones; if false, from active zones.
    """
    return _evict_in_turn(
        ledger, evicted, short, reason, beneficiary, lambda: ledger.totals.victims.surplus(beneficiary, quiet=quiet)
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

"""The quota algebra of one engine, as pure functions: how many blocks each zone may take.

A zone *holds* the blocks that its requests use and the ones that it keeps cached; blocks that no zone holds are free. A
reservation is a promise and sets no blocks apart: it is part of the numbers below, and others may use it only when its
owner is quiet.

The rules follow Kueue's lending limits (a quiet zone's floor is ``reserved - lendable``) and cgroup v2's ``memory.min``
(blocks held below the reservation are never reclaimed for other zones).

Values that depend on all other zones are passed in as sums (``…_elsewhere``), so that the cost of a query does not grow
with the number of zones.
"""

from dataclasses import dataclass

from tenantzone_contract.reports.report import WaitReason


@dataclass(frozen=True, slots=True)
class Quota:
    """The promise to a tenant: ``0 <= lendable <= reserved <= limit``, in blocks."""

    reserved: int
    limit: int
    lendable: int


def floor(quota: Quota, quiet: bool) -> int:
    """Returns the part of the reservation that no other zone may take now, in blocks."""
    return quota.reserved - quota.lendable if quiet else quota.reserved


def unused(quota: Quota, held: int) -> int:
    """Returns the blocks to which the zone is still entitled, in addition to those that it holds."""
    return max(0, quota.reserved - held)


def surplus(quota: Quota, held: int) -> int:
    """Returns the blocks that the zone holds above its reservation: in the unreserved part of the pool, or on loan."""
    return max(0, held - quota.reserved)


def locked(quota: Quota, held: int, quiet: bool) -> int:
    """Returns the blocks that must stay obtainable for the zone, in addition to those that it holds."""
    return max(0, floor(quota, quiet) - held)


def evictable(quota: Quota, in_use: int, cached: int, lends_cache: bool = True) -> int:
    """Returns the cached blocks that a quiet zone gives up to zones that may borrow from it (S2): down to its floor.

    If ``lends_cache`` is false, the zone gives up only blocks above its reservation.
    """
    kept = floor(quota, quiet=True) if lends_cache else quota.reserved
    return min(cached, max(0, in_use + cached - kept))


def reclaimable(cached: int, surplus: int, evictable: int) -> int:
    """Returns a zone's cached blocks that another zone within its reservation may take, by S0 or S2.

    Args:
        cached: cached blocks of the zone.
        surplus: blocks that the zone holds above its reservation; S0 can evict the cached ones among them.
        evictable: blocks that S2 can evict.
    """
    return max(min(cached, surplus), evictable)


def parts(quota: Quota, in_use: int, cached: int, quiet: bool, lends_cache: bool = True) -> tuple[int, int, int, int]:
    """Returns a zone's locked blocks, its surplus, its evictable blocks and its reclaimable blocks.

    All four are needed whenever a zone's blocks change, mostly for zones that are not quiet.
    """
    if quiet:
        held = in_use + cached
        above, given = surplus(quota, held), evictable(quota, in_use, cached, lends_cache)
        return locked(quota, held, quiet), above, given, reclaimable(cached, above, given)
    above = in_use + cached - quota.reserved
    return (0, above, 0, min(cached, above)) if above > 0 else (-above, 0, 0, 0)


def offered(quota: Quota, in_use: int, cached: int, lends_cache: bool = True) -> int:
    """Returns the part of a quiet zone's reservation, cached or unused, that is offered to zones that may borrow it.

    For all other zones, this part is locked as well.
    """
    held = in_use + cached
    cached_within = evictable(quota, in_use, cached, lends_cache) - min(cached, surplus(quota, held))
    return cached_within + unused(quota, held) - locked(quota, held, quiet=True)


def spare(
    cached: int, *, free: int, evictable_elsewhere: int, locked_elsewhere: int, withheld_elsewhere: int = 0
) -> int:
    """Returns the blocks promised to no zone: free, evictable or the zone's own cache, and neither locked nor withheld.

    Locked blocks are promised to another zone. Withheld blocks are offered by zones that do not lend to zones of this
    priority. The result is negative if promises can't be kept at the moment.
    """
    return free + cached + evictable_elsewhere - locked_elsewhere - withheld_elsewhere


def takeable(
    quota: Quota, in_use: int, cached: int, *, peak: int = 0, free: int, reclaimable_elsewhere: int, spare: int
) -> int:
    """Returns the most blocks that the zone may start to use at once, including its own cached ones.

    Up to its reservation, the zone may take all blocks that other zones do not use within their reservations
    (``entitled``). Above that, it may take spare blocks. These include its own cache, so it can always replace its
    cache, as long as the blocks that other zones have locked stay obtainable. The limit bounds the blocks in use; if
    the total would exceed it, the zone's own cache is reduced. ``peak`` is the number of blocks that the request uses
    when it is longest; it replaces the limit if that was lowered below it.
    """
    entitled = min(quota.reserved - in_use, free + cached + reclaimable_elsewhere)
    return max(0, min(max(entitled, spare), max(quota.limit, peak) - in_use))


def wait_reason(quota: Quota, in_use: int, count: int, *, peak: int = 0, free: int, cached: int) -> WaitReason:
    """Returns why a zone that may not take ``count`` blocks must wait; ``cached`` counts all zones' cached blocks."""
    if in_use + count > max(quota.limit, peak):
        return "limit"
    return "reserved" if count <= free + cached else "in_use"

"""The quota algebra of one engine, as pure functions: how many blocks each zone may take.

A zone *holds* the blocks that its requests use and the blocks that it keeps cached. Blocks that no zone holds are free.
A reservation is a promise that sets no blocks apart. It only enters into the numbers below, and other zones may use
reserved blocks only while the reservation's owner is quiet.

The rules follow Kueue's lending limits (a quiet zone's floor is ``reserved - lendable``) and cgroup v2's ``memory.min``
(blocks held below the reservation are never reclaimed for other zones).

Values that depend on all other zones are passed in as sums (``…_elsewhere``), so that the cost of a query does not grow
with the number of zones.
"""

from dataclasses import dataclass

from tenantzone_contract.reports.words import WaitReason


@dataclass(frozen=True, slots=True)
class Quota:
    """The promise to a tenant: ``0 <= lendable <= reserved <= limit``, in blocks."""

    reserved: int
    limit: int
    lendable: int


def floor(quota: Quota, quiet: bool) -> int:
    """Returns the number of reserved blocks that no other zone may take now."""
    return quota.reserved - quota.lendable if quiet else quota.reserved


def unused(quota: Quota, held: int) -> int:
    """Returns the number of blocks to which the zone is still entitled, in addition to the blocks that it holds."""
    return max(0, quota.reserved - held)


def surplus(quota: Quota, held: int) -> int:
    """Returns the number of blocks that the zone holds above its reservation, which are unreserved or on loan."""
    return max(0, held - quota.reserved)


def locked(quota: Quota, held: int, quiet: bool) -> int:
    """Returns the number of blocks that must stay obtainable for the zone, in addition to the blocks that it holds."""
    return max(0, floor(quota, quiet) - held)


def evictable(quota: Quota, in_use: int, cached: int, lends_cache: bool = True) -> int:
    """Returns how many cached blocks a quiet zone gives up to zones that may borrow from it (S2), down to its floor.

    If ``lends_cache`` is false, the zone gives up only blocks above its reservation.
    """
    kept = floor(quota, quiet=True) if lends_cache else quota.reserved
    return min(cached, max(0, in_use + cached - kept))


def reclaimable(cached: int, surplus: int, evictable: int) -> int:
    """Returns how many of a zone's cached blocks an entitled zone may take, by S0 or S2.

    Args:
        cached: number of cached blocks of the zone.
        surplus: number of blocks that the zone holds above its reservation; S0 can evict them if they are cached.
        evictable: number of blocks that S2 can evict.
    """
    return max(min(cached, surplus), evictable)


def parts(quota: Quota, in_use: int, cached: int, quiet: bool, lends_cache: bool = True) -> tuple[int, int, int, int]:
    """Returns a zone's numbers of locked, surplus, evictable and reclaimable blocks.

    One function computes all four, to save time, because each change of a zone's blocks needs them. The case of a zone
    that is not quiet is the fastest, because it is the most frequent.
    """
    if quiet:
        held = in_use + cached
        above, given = surplus(quota, held), evictable(quota, in_use, cached, lends_cache)
        return locked(quota, held, quiet), above, given, reclaimable(cached, above, given)
    above = in_use + cached - quota.reserved
    return (0, above, 0, min(cached, above)) if above > 0 else (-above, 0, 0, 0)


def offered(quota: Quota, in_use: int, cached: int, lends_cache: bool = True) -> int:
    """Returns how many reserved blocks, cached or unused, a quiet zone offers to zones that may borrow them.

    For zones that may not borrow them, these blocks are locked as well.
    """
    held = in_use + cached
    cached_within = evictable(quota, in_use, cached, lends_cache) - min(cached, surplus(quota, held))
    return cached_within + unused(quota, held) - locked(quota, held, quiet=True)


def spare(
    cached: int, *, free: int, evictable_elsewhere: int, locked_elsewhere: int, withheld_elsewhere: int = 0
) -> int:
    """Returns the number of spare blocks: free, own cached and evictable blocks, minus locked and withheld blocks.

    Locked blocks are promised to other zones. Withheld blocks are offered by zones that do not lend to zones of this
    priority. The result is negative if promises can't be kept at the moment.
    """
    return free + cached + evictable_elsewhere - locked_elsewhere - withheld_elsewhere


def takeable(
    quota: Quota, in_use: int, cached: int, *, peak: int = 0, free: int, reclaimable_elsewhere: int, spare: int
) -> int:
    """Returns the most blocks that the zone may start to use now, including its own cached blocks.

    Up to its reservation, the zone may take all blocks that other zones do not use within their reservations
    (``entitled``). Above that, it may take spare blocks. These include its own cache, so it can always replace its
    cache, as long as the blocks that other zones have locked stay obtainable. The limit bounds the blocks in use. If
    blocks in use and cached blocks together would exceed the limit, the zone's own cache is reduced. ``peak`` is the
    most blocks that the request can use; it replaces a limit that was lowered below it.
    """
    entitled = min(quota.reserved - in_use, free + cached + reclaimable_elsewhere)
    return max(0, min(max(entitled, spare), max(quota.limit, peak) - in_use))


def wait_reason(quota: Quota, in_use: int, count: int, *, peak: int = 0, free: int, cached: int) -> WaitReason:
    """Returns why a zone that may not take ``count`` blocks must wait; ``cached`` counts all zones' cached blocks."""
    if in_use + count > max(quota.limit, peak):
        return "limit"
    return "reserved" if count <= free + cached else "in_use"

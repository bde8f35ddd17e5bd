"""Who may take how many blocks: the quota algebra of one engine, as pure functions.

A zone *holds* the blocks that its requests use and the ones that it keeps cached; what nobody holds is free. A
reservation is a promise, not a parked block: it sits in the numbers below, and only when its owner is quiet may others
stand on it.

The rules follow Kueue's lending limits (the exclusive part of a reservation is ``reserved - lendable``) and cgroup v2's
``memory.min`` (what is held below the reservation is never reclaimed for others).

What depends on all other zones comes in as sums (``…_elsewhere``), so that no question costs more with more zones.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant was promised: ``0 <= lendable <= reserved <= limit``, in blocks."""

    reserved: int
    limit: int
    lendable: int


def exclusive(quota: Quota, quiet: bool) -> int:
    """The part of the reservation that nobody else may stand on now."""
    return quota.reserved - quota.lendable if quiet else quota.reserved


def locked(quota: Quota, held: int, quiet: bool) -> int:
    """Blocks that must stay obtainable for the zone, on top of what it holds."""
    return max(0, exclusive(quota, quiet) - held)


def evictable(quota: Quota, in_use: int, cached: int, quiet: bool) -> int:
    """Cached blocks that anybody may take from a quiet zone (S1): down to its exclusive part, never in use."""
    if not quiet:
        return 0
    return min(cached, max(0, in_use + cached - exclusive(quota, quiet)))


def recallable(quota: Quota, in_use: int, cached: int, quiet: bool) -> int:
    """Cached blocks that a zone within its own reservation may take (S1, then S1b): down to this zone's reservation."""
    surplus = min(cached, max(0, in_use + cached - quota.reserved))
    return max(surplus, evictable(quota, in_use, cached, quiet))


def takeable(
    quota: Quota,
    in_use: int,
    cached: int,
    *,
    grace: int = 0,
    free: int,
    evictable_elsewhere: int,
    recallable_elsewhere: int,
    locked_elsewhere: int,
) -> int:
    """The most blocks that the zone may put to use in one go, its own cached ones among them.

    Up to its reservation it may take whatever is not in use by others within theirs: ``entitled``. Above that, it gets
    what is free or evictable and not locked for somebody else. Its own cache it can always turn over as far as that
    leaves the others' locked part obtainable. The limit bounds what is in use; if held would pass it, the zone's own
    cache pays the difference. ``grace`` stands in for a limit that was lowered below what a request in flight needs.
    """
    entitled = min(quota.reserved - in_use, free + cached + recallable_elsewhere)
    surplus = free + cached + evictable_elsewhere - locked_elsewhere
    return max(0, min(max(entitled, surplus), max(quota.limit, grace) - in_use))

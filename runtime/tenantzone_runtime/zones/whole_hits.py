"""Room in a tier for what a hit lacks there: for all of it, or for nothing, since a part would be of no use."""

from collections.abc import Sequence

from tenantzone_runtime.zones.tier import Tier
from tenantzone_runtime.zones.zone import Zone


def make_room_for_hit(tier: Tier, zone: Zone, there: Sequence[int], count: int) -> tuple[bool, list[int]]:
    """Make room for ``count`` new chunks of a hit, so that no other hit that goes for them takes along what is there.

    Args:
        tier: in which no request counts on anything.
        zone: whose.
        there: its chunks of the hit.
        count: those that it lacks.

    Returns:
        Whether they may be stored now, and chunks that were given up.
    """
    is_counted_on, tier.is_counted_on = tier.is_counted_on, set(there).__contains__
    granted, given_up = tier.make_room(zone, count, there, whole=True)
    tier.is_counted_on = is_counted_on
    return granted == count, given_up

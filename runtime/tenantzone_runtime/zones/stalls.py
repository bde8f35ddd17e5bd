"""Stalls: for how long each zone's next request has waited for blocks, and why.

As for the ``some`` of Linux' pressure stall information, time counts in which there was something to do and nothing to
do it with. A zone whose next request was denied its blocks is stalled from then on until it is looked at again and may
have them; and it is looked at as soon as something changes for it. Or until it has no waiting request, or the engine
takes on none. So a step costs nothing for zones that are stalled, nor for those that are not.
"""

from tenantzone_contract.report import WaitReason
from tenantzone_runtime.zones.zone import Zone


class Stalls:
    """The zones that are stalled now, and since when."""

    def __init__(self) -> None:
        self._since: dict[Zone, float] = {}
        """From when on the time of each stalled zone is not counted yet."""

    def begin(self, zone: Zone, denied: int, reason: WaitReason, now: float) -> None:
        """Begin or go on with the stall of a zone whose next request was denied so many blocks."""
        zone.denied = denied
        if zone.wait_reason != reason:
            self._count(zone, now)
            zone.wait_reason = reason
            self._since[zone] = now

    def end(self, zone: Zone, now: float) -> None:
        """End the stall of a zone whose next request need not wait for blocks, or that has none."""
        if zone.wait_reason is not None:
            self._count(zone, now)
            del self._since[zone]
            zone.wait_reason, zone.denied = None, 0

    def end_all(self, now: float) -> None:
        """End the stalls of all zones."""
        for zone in list(self._since):
            self.end(zone, now)

    def count(self, zone: Zone, now: float) -> None:
        """Bring the zone's counter of stalled seconds up to date."""
        if zone in self._since:
            self._count(zone, now)
            self._since[zone] = now

    def _count(self, zone: Zone, now: float) -> None:
        reason = zone.wait_reason
        if reason is not None:
            stalled = zone.counters.stalled_seconds
            stalled[reason] = stalled.get(reason, 0.0) + now - self._since[zone]

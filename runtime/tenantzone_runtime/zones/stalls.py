"""For how long each zone's next request has waited for blocks, and why.

As for the ``some`` of Linux' pressure stall information, time counts in which there was something to do and nothing to
do it with. What a step found holds until the next step: a zone whose next request was looked at and denied its blocks
is stalled from that step until one admits it, or does not get to it, because the tokens or the places of the step were
used up before: then it is not for blocks that the request waits, or nobody knows. So a reason that nobody confirms
does not go on counting, and a step costs nothing for zones that are not stalled.
"""

from tenantzone_contract.report import WaitReason
from tenantzone_runtime.zones.zone import Zone


class Stalls:
    """The zones that are stalled now."""

    def __init__(self) -> None:
        self._since: dict[Zone, float] = {}
        """From when on the time of each stalled zone is not counted yet."""
        self._denied: set[Zone] = set()
        """In the step that is being made."""

    def begin(self, zone: Zone, denied: int, reason: WaitReason, now: float) -> None:
        """The zone's next request was denied so many blocks in this step."""
        self._denied.add(zone)
        zone.denied = denied
        if zone.wait_reason != reason:
            self._count(zone, now)
            zone.wait_reason = reason
            self._since[zone] = now

    def end(self, zone: Zone, now: float) -> None:
        """The zone's next request need not wait for blocks, or there is none."""
        if zone.wait_reason is not None:
            self._count(zone, now)
            del self._since[zone]
            self._denied.discard(zone)
            zone.wait_reason, zone.denied = None, 0

    def end_step(self, now: float) -> None:
        """What was not confirmed in this step is over."""
        if len(self._denied) < len(self._since):
            for zone in self._since.keys() - self._denied:
                self.end(zone, now)
        if self._denied:
            self._denied = set()

    def count(self, zone: Zone, now: float) -> None:
        """Bring a zone's counter up to date."""
        if zone in self._since:
            self._count(zone, now)
            self._since[zone] = now

    def _count(self, zone: Zone, now: float) -> None:
        reason = zone.wait_reason
        if reason is not None:
            stalled = zone.counters.stalled_seconds
            stalled[reason] = stalled.get(reason, 0.0) + now - self._since[zone]

"""Wait accounting: for how long each zone's next request has waited, and why.

As with ``some`` in Linux' pressure stall information, time counts while there is work but no resource for it. A zone
whose next request was denied is stalled until the request is considered again and may be admitted, until the zone has
no waiting request, or until the engine stops admitting requests. So steps need not update the counters.

While no seat is free, no zone is considered. One clock for all zones, the seat clock, measures this time. For each zone
that has a waiting request and is not stalled for another reason, this time counts as waiting for a seat.
"""

from tenantzone_contract.reports.words import WaitReason
from tenantzone_runtime.zones.model.zone import Zone


class WaitAccounting:
    """The zones that are stalled now, and since when each zone is stalled."""

    def __init__(self) -> None:
        self._since: dict[Zone, float] = {}
        """Time up to which the wait of each stalled zone is counted."""
        self._queued: dict[Zone, float] = {}
        """For each zone with a waiting request: the time of the seat clock up to which its waits are counted."""
        self._full_seconds = 0.0
        self._full_since: float | None = None
        """Time since which no seat is free; None if a seat is free."""

    @property
    def is_full(self) -> bool:
        """Whether no seat is free."""
        return self._full_since is not None

    def seats_are(self, *, taken: bool, now: float) -> None:
        """Note whether all seats are taken from now on."""
        if taken != self.is_full:
            self._full_seconds = self._clock(now)
            self._full_since = now if taken else None

    def enter(self, zone: Zone, now: float) -> None:
        """Note that a zone has a waiting request."""
        if zone not in self._queued:
            self._queued[zone] = self._clock(now)

    def leave(self, zone: Zone, now: float) -> None:
        """Note that a zone no longer has a waiting request."""
        self.count(zone, now)
        self._queued.pop(zone, None)
        self.end(zone, now)

    def begin(self, zone: Zone, denied: int, reason: WaitReason, now: float) -> None:
        """Begin or continue the wait of a zone whose next request was denied; ``denied`` is in blocks, and may be 0."""
        zone.denied = denied
        if zone.wait_reason != reason:
            self.count(zone, now)
            zone.wait_reason = reason
            self._since[zone] = now

    def end(self, zone: Zone, now: float) -> None:
        """End the wait of a zone whose next request may be admitted, or that has no waiting request."""
        if zone.wait_reason is not None:
            self.count(zone, now)
            del self._since[zone]
            zone.wait_reason, zone.denied = None, 0
            if zone in self._queued:
                self._queued[zone] = self._clock(now)

    def end_all(self, now: float) -> None:
        """End the waits of all zones."""
        for zone in list(self._since):
            self.end(zone, now)

    def count(self, zone: Zone, now: float) -> None:
        """Add the wait since the last call to the zone's counters of stalled seconds."""
        if zone.wait_reason is not None:
            self._add(zone, zone.wait_reason, now - self._since[zone])
            self._since[zone] = now
        elif zone in self._queued:
            clock = self._clock(now)
            self._add(zone, "seats", clock - self._queued[zone])
            self._queued[zone] = clock

    def _add(self, zone: Zone, reason: WaitReason, seconds: float) -> None:
        if seconds:
            stalled = zone.counters.stalled_seconds
            stalled[reason] = stalled.get(reason, 0.0) + seconds

    def _clock(self, now: float) -> float:
        """Returns the time of the seat clock: the total seconds in which no seat was free."""
        return self._full_seconds + (0.0 if self._full_since is None else now - self._full_since)

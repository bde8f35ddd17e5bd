"""Separates zones whose users wait for a status from all other zones, in pure functions."""

from tenantzone_operator.kube.conditions import Type
from tenantzone_operator.kube.resources import Zone
from tenantzone_operator.status.notices import Status

AWAITED_SECONDS = 60.0
"""Seconds after the first status for a change during which a user waits for the zone, unless it becomes Programmed."""


class Awaited:
    """Tracks zones that a user has just changed, whose statuses are written before all others.

    An engine that sends false reports, or fails repeatedly, can change the status of each zone of its pool at any rate.
    The status of a zone that a user waits for must not queue behind such changes.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[int, float]] = {}
        """Newest generation of each zone, and the time until which a user waits for that generation, by uid."""
        self._told_at: dict[str, float] = {}
        """Time at which each zone's status was last written while no user waited for it, by uid."""

    def keep(self, uids: set[str]) -> None:
        """Forget all zones except for these."""
        if len(self._until) > 2 * len(uids):
            self._until = {uid: until for uid, until in self._until.items() if uid in uids}
            self._told_at = {uid: at for uid, at in self._told_at.items() if uid in uids}

    def sort(self, zones: list[Zone], now: float) -> tuple[list[Zone], list[Zone]]:
        """Returns the zones that a user waits for, and the other zones sorted by the age of their status."""
        awaited = [zone for zone in zones if self._is_awaited(zone, now)]
        others = [zone for zone in zones if not self._is_awaited(zone, now)]
        return awaited, sorted(others, key=lambda zone: self._told_at.get(zone.meta.uid, 0.0))

    def _is_awaited(self, zone: Zone, now: float) -> bool:
        uid, generation = zone.meta.uid, zone.meta.generation
        if self._until.get(uid, (0, 0.0))[0] != generation:
            if zone.status.get("observedGeneration") != generation:
                # No status was written for this generation yet, which may take long if thousands of zones changed
                # together.
                return True
            self._until[uid] = generation, now if _is_programmed(zone.status) else now + AWAITED_SECONDS
        return now < self._until[uid][1]

    def note(self, zone: Zone, status: Status, now: float) -> None:
        """Record that a zone's status was written."""
        if not self._is_awaited(zone, now):
            self._told_at[zone.meta.uid] = now
        if _is_programmed(status):
            self._until[zone.meta.uid] = zone.meta.generation, now


def _is_programmed(status: Status) -> bool:
    conditions = status.get("conditions", [])
    return any(found["type"] == Type.PROGRAMMED and found["status"] == "True" for found in conditions)

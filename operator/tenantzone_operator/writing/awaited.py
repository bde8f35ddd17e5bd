"""Which zones' statuses somebody waits for, and which only say what engines do by themselves; pure."""

from tenantzone_operator.kube.conditions import Type
from tenantzone_operator.kube.resources import Zone
from tenantzone_operator.status.notices import Status

AWAITED_SECONDS = 60.0
"""For so long after a change was first told of somebody waits for the zone, unless it is Programmed before."""


class Awaited:
    """The zones that somebody has just changed: what is written of them comes before all else.

    An engine that lies, or fails over and over, changes the status of each zone of its pool as often as it likes. No
    status of a zone that somebody waits for may stand in line behind those.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[int, float]] = {}
        """By uid: the newest generation, and until when somebody waits for it."""
        self._told_at: dict[str, float] = {}
        """By uid: when its status was last written although nobody waited."""

    def keep(self, uids: set[str]) -> None:
        """Forget all zones but these."""
        if len(self._until) > 2 * len(uids):
            self._until = {uid: until for uid, until in self._until.items() if uid in uids}
            self._told_at = {uid: at for uid, at in self._told_at.items() if uid in uids}

    def sort(self, zones: list[Zone], now: float) -> tuple[list[Zone], list[Zone]]:
        """The zones that somebody waits for, and the others, of which those come first whose status is the oldest."""
        awaited = [zone for zone in zones if self._is_awaited(zone, now)]
        others = [zone for zone in zones if not self._is_awaited(zone, now)]
        return awaited, sorted(others, key=lambda zone: self._told_at.get(zone.meta.uid, 0.0))

    def _is_awaited(self, zone: Zone, now: float) -> bool:
        uid, generation = zone.meta.uid, zone.meta.generation
        if self._until.get(uid, (0, 0.0))[0] != generation:
            if zone.status.get("observedGeneration") != generation:
                # Nobody has been told anything of it yet: that may take long, if thousands came with it.
                return True
            self._until[uid] = generation, now if _is_programmed(zone.status) else now + AWAITED_SECONDS
        return now < self._until[uid][1]

    def note(self, zone: Zone, status: Status, now: float) -> None:
        """Note that a zone's status was written."""
        if not self._is_awaited(zone, now):
            self._told_at[zone.meta.uid] = now
        if _is_programmed(status):
            self._until[zone.meta.uid] = zone.meta.generation, now


def _is_programmed(status: Status) -> bool:
    conditions = status.get("conditions", [])
    return any(found["type"] == Type.PROGRAMMED and found["status"] == "True" for found in conditions)

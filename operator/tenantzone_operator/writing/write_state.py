"""Tracks the status writes of one object: whether to write now, and whether a user waits for the status."""

import asyncio
from dataclasses import dataclass

from tenantzone_operator.kube.conditions import Type
from tenantzone_operator.kube.resources import Zone
from tenantzone_operator.status.notices import Status
from tenantzone_operator.writing.refusals import Refusal

AWAITED_SECONDS = 60.0
"""A user waits for at most this number of seconds after a generation's first status, until the zone is Programmed."""
REPAIR_SECONDS = 10.0
"""Minimum number of seconds between two repairs of a status that other clients keep changing."""


@dataclass(slots=True, eq=False)
class WriteState:
    """The status writes of one zone or pool. Times are monotonic seconds.

    An engine that sends false reports, or fails repeatedly, can change the status of each zone of its pool at any rate.
    The status of a zone that a user waits for must not queue behind such changes.
    """

    in_flight: asyncio.Task[None] | None = None
    """The write in flight; None if there is none. An object has at most one write in flight."""
    written: Status | None = None
    """Last written status; None if this process has written none."""
    merged: Status | None = None
    """Status that the API server returned for the last write; None if it equals the written status.

    The two differ, for example, if other clients have added conditions.
    """
    repaired_at: float = float("-inf")
    """Time of the last repair, which writes the same status again after another client has changed it."""
    refusal: Refusal | None = None
    """The API server's permanent refusal of the last write; None if the write succeeded."""
    has_gauges_due: bool = False
    """Whether the zone's changed amounts wait for a write that is already scheduled."""
    seen_generation: int = 0
    """Newest generation of the zone for which a status was written."""
    awaited_until: float = 0.0
    """Time until which a user waits for the status of ``seen_generation``."""
    unhurried_at: float = 0.0
    """Time of the last write of the zone's status while no user waited for the status."""

    def differs(self, found: Status, status: Status) -> bool:
        """Returns whether to write the status; fields that other clients have added do not count as a difference.

        ``found`` is the status in the API server, ``status`` the wanted status.
        """
        return status not in (found, self.own_part(found))

    def settle(self) -> None:
        """Record that the API server has the wanted status, so that no write is pending."""
        self.refusal = None
        self.has_gauges_due = False

    def own_part(self, found: Status) -> Status:
        """Returns the status in the API server without fields that other clients had added before the last write.

        If another client has changed the status since that write, the result is ``found``, unchanged.
        """
        return self.written if self.written is not None and self.merged == found else found

    def may_write(self, status: Status, now: float) -> bool:
        """Returns whether to write a status now, or to wait because of a recent repair or refusal.

        Without a pause between repairs, two clients would overwrite each other nonstop.
        """
        if self.refusal is not None and not self.refusal.may_try(status, now):
            return False
        return self.written != status or now - self.repaired_at >= REPAIR_SECONDS

    def begin(self, status: Status, now: float) -> None:
        """Record that a write of the object begins."""
        self.has_gauges_due = False
        if self.written == status:
            self.repaired_at = now

    def refuse(self, status: Status, now: float) -> bool:
        """Record that the API server refuses a status permanently, and return whether the refusal is new."""
        is_new = self.refusal is None or self.refusal.what != status
        self.refusal = Refusal(status, now)
        return is_new

    def note(self, status: Status, result: Status) -> None:
        """Record that a status was written, and the status that the API server returned."""
        self.refusal, self.written = None, status
        self.merged = result if result != status else None

    def see(self, zone: Zone, now: float) -> None:
        """If this is the first status of a zone's generation, record until when a user waits for further statuses."""
        generation = zone.meta.generation
        if self.seen_generation != generation and zone.status.get("observedGeneration") == generation:
            self.seen_generation = generation
            self.awaited_until = now if _is_programmed(zone.status) else now + AWAITED_SECONDS

    def is_awaited(self, zone: Zone, now: float) -> bool:
        """Returns whether a user waits for the status of a zone that :meth:`see` has recorded."""
        # The wait for the first status of a generation has no time limit, because thousands of zones may have changed
        # together.
        return self.seen_generation != zone.meta.generation or now < self.awaited_until

    def note_zone(self, zone: Zone, status: Status, now: float) -> None:
        """Record that ``status`` was written to a zone. ``zone`` still has the previous status."""
        self.see(zone, now)
        if not self.is_awaited(zone, now):
            self.unhurried_at = now
        if _is_programmed(status):
            self.seen_generation, self.awaited_until = zone.meta.generation, now


def _is_programmed(status: Status) -> bool:
    conditions = status.get("conditions", [])
    return any(found["type"] == Type.PROGRAMMED and found["status"] == "True" for found in conditions)

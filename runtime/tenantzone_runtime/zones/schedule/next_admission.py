"""The next admission: keeps its plan while nothing changes, and commits the plan when the engine admits the request.

An engine asks several times which request is next before it admits one, or none. Asking changes nothing.
"""

from typing import Generic

from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.resources.adapter_slots import AdapterSlots
from tenantzone_runtime.zones.resources.seats import Seats
from tenantzone_runtime.zones.schedule.admission import Admission
from tenantzone_runtime.zones.schedule.admission_plan import AdmissionPlan
from tenantzone_runtime.zones.schedule.admission_planner import AdmissionPlanner
from tenantzone_runtime.zones.schedule.claims import Claims


class NextAdmission(Generic[W]):
    """The next admission of one engine.

    Args:
        planner: plans admissions.
        admission: the zones with waiting requests.
        claims: the blocks kept for requests in the step.
        seats: the seats.
        slots: the adapter slots.
    """

    def __init__(
        self,
        planner: AdmissionPlanner[W],
        admission: Admission,
        claims: Claims[W],
        seats: Seats[W],
        slots: AdapterSlots[W],
    ) -> None:
        self._planner = planner
        self._admission = admission
        self._claims = claims
        self._seats = seats
        self._slots = slots
        self.plan: AdmissionPlan[W] | None = None
        """The plan; None if something has changed since it was made. Changes that `AdmissionPlanner.state` does not
        show must set it to None."""

    def has_admissible(self) -> bool:
        """Whether a waiting request can be admitted now. Changes nothing."""
        return self.front() is not None

    def front(self) -> W | None:
        """Returns the waiting request to admit next; None if no seat is free, or no zone's request can get blocks.

        Changes nothing. The answer is kept until it may have changed, or until the request leaves its queue.
        """
        return self._current_plan().work

    def admit(self, work: W) -> None:
        """Make room for a request that `front` has returned. It stays the next one until it is popped.

        If the engine can't use the evicted blocks yet, it finds too few for the request, and calls
        `Arbiter.turned_down`.
        """
        if self.plan is not None and self.plan.work is work:
            self.plan.commit()
            self.plan.is_committed = True

    def admit_front(self) -> W | None:
        """Returns the result of `front`, after making the room that the request needs.

        Blocks are evicted for it, and zones that were considered before it are set aside. The engine then admits or
        skips the request, and takes it out of its queue.
        """
        while (plan := self._current_plan()).work is not None:
            if plan.commit():
                return plan.work
            # The engine can't use the evicted blocks yet.
            self.plan = None
        self.commit_notes()
        return None

    def commit_notes(self) -> None:
        """No request is admitted now, so note why the zones that were considered for an admission wait."""
        if self.plan is not None:
            # The state may have changed since the engine asked.
            self._current_plan().commit_notes()
            self.plan = None

    def end(self) -> bool:
        """End the plan after a queue has changed. Most likely, the engine has admitted the planned request.

        Returns:
            Whether the engine has skipped the planned request instead, because it waits for something else.
        """
        plan, self.plan = self.plan, None
        work = None if plan is None or not plan.is_committed else plan.work
        if work is None:
            return False
        self._claims.drop(work)
        self._admission.request_was_admitted()
        if not self._slots.blocks_at_most(work):
            return True
        self._seats.sat_down(work)
        self._slots.has_begun(work)
        return False

    def _current_plan(self) -> AdmissionPlan[W]:
        plan = self.plan
        if plan is None or not (plan.is_committed or plan.state == self._planner.state()):
            plan = self.plan = self._planner.plan()
        return plan

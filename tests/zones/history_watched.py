"""The arbiter and the tenancy of random history, with checks of their decisions."""

from tenantzone_runtime.zones.schedule.arbiter import Arbiter
from tenantzone_runtime.zones.tenancy import Tenancy


class WatchedTenancy(Tenancy):
    """Surplus reclaim, and the reason why a zone waits, match the model."""

    def __init__(self, history, capacity, now):
        super().__init__(capacity, capacity, now)
        self._history = history

    def evict_surplus_for(self, zone, count, free, peak=0):
        return self._history.evict_surplus_for(
            zone, count, peak, lambda: super(WatchedTenancy, self).evict_surplus_for(zone, count, free, peak)
        )

    def cover_loans(self, borrower):
        self._history.covered_for = self._history.model.zones[borrower.spec.tenant]
        return super().cover_loans(borrower)

    def must_wait(self, zone, count, free, peak=0):
        super().must_wait(zone, count, free, peak)
        self._history.check_wait(zone, count, peak)


class WatchedArbiter(Arbiter):
    """The preempted request, and the reason, match the model."""

    def __init__(self, history, tenancy, engine):
        super().__init__(tenancy, engine)
        self._history = history

    def preempt(self, work, reason, beneficiary):
        self._history.check_victim(work, reason, beneficiary)
        super().preempt(work, reason, beneficiary)

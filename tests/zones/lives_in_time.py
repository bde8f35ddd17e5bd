"""What time does to an engine's zones, checked step by step: windows, loans, watermarks, preemption past grace."""

from tenantzone_contract.config import Watermarks
from tenantzone_runtime.zones import preemption
from tests.zones.configs import CAPACITY
from tests.zones.lives import Lives, by_tenant


class LivesInTime(Lives):
    """Upkeep, as housekeeping calls it."""

    def pass_time(self, seconds):
        self.now += seconds
        before = {zone: zone.counters.evicted.get("due", 0) for zone in self.ledger.zones.values()}
        evictions = self.tenancy.upkeep(self.now, self.free)
        idle = by_tenant(self.world.let_time_pass(self.now))
        if any(self.world.claims[tenant].cached for tenant in idle.keys() & self.world.claims.keys()):
            self._saw("released in steps")
        due = {zone.spec.tenant: zone.counters.evicted.get("due", 0) - count for zone, count in before.items()}
        remaining = list(self._evicted(evictions))
        remaining = self._take_off(remaining, {tenant: len(blocks) for tenant, blocks in idle.items()}, idle)
        self._check_sums_of_loans(exact=False)
        remaining = self._give_back_due(remaining, due)
        self._check_overdue()
        self._check_watermark(remaining)
        self._preempt_past_grace()

    def _take_off(self, remaining, counts, expected):
        """The evictions at the front that time itself brought must be what the reference says."""
        got = {}
        while sum(counts.values()) > 0:
            tenant, blocks = remaining.pop(0)
            counts[tenant] -= len(blocks)
            got.setdefault(tenant, []).extend(blocks)
        assert got == expected
        return remaining

    def _give_back_due(self, remaining, due):
        """Surplus that stood on loans whose time is over; which loans these are is the book's to say."""
        while sum(due.values()) > 0:
            tenant, blocks = remaining.pop(0)
            claim = self.world.claims[tenant]
            assert len(blocks) <= claim.above(claim.reserved), "I7: what is within the reservation is nobody's loan"
            assert claim.lose(len(blocks)) == blocks
            self.world.free |= set(blocks)
            self.world.note_evicted(claim)
            due[tenant] -= len(blocks)
            self._saw("evicted: due")
        return remaining

    def _check_overdue(self):
        """A loan past its time stands on nothing but blocks in use, and holds its borrower to what is its own."""
        owed = {}
        for loan in self.tenancy.loans:
            if loan.due is not None and loan.due <= self.now:
                owed[loan.borrower] = owed.get(loan.borrower, 0) + loan.blocks
                self._saw("overdue")
        for tenant, zone in self.ledger.zones.items():
            claim = self.world.claims[tenant]
            assert zone.overdue == owed.get(zone, 0)
            claim.overdue = zone.overdue
            if zone.overdue:
                assert len(claim.in_use) >= claim.reserved + zone.overdue

    def _check_watermark(self, remaining):
        marks = Watermarks() if self.config is None else self.config.pool.watermarks
        paid = []
        if self.free < int(marks.low * CAPACITY):
            paid = self.world.pay_for_watermark(int(marks.high * CAPACITY))
        assert remaining == [(tenant, blocks) for tenant, blocks, _ in paid]
        if paid:
            self._saw("evicted: watermark")
        self._reasons()

    def _preempt_past_grace(self):
        """As the adapter does, until nobody stands on a loan that is past its grace."""
        while borrowers := self.tenancy.past_grace():
            borrower = borrowers[0]
            running = [request for request in self.requests if request.running]
            index = preemption.youngest([request.zone for request in running], borrower)
            assert index is not None, "a loan that is past its grace stands on running requests"
            self._saw("preempted: due")
            self._preempt(running[index])
            self.tenancy.loans.settle(self.free)
            payments = self._evicted(self.tenancy.collect_due(self.free))
            self._give_back_due(payments, {tenant: len(blocks) for tenant, blocks in by_tenant(payments).items()})
            self._check_overdue()
            self._reasons()

    def _check_sums_of_loans(self, *, exact):
        lent, borrowed = {}, {}
        for loan in self.tenancy.loans:
            assert loan.blocks > 0
            assert loan.lender is not loan.borrower
            lent[loan.lender] = lent.get(loan.lender, 0) + loan.blocks
            borrowed[loan.borrower] = borrowed.get(loan.borrower, 0) + loan.blocks
        if exact:
            assert sum(lent.values()) == self.world.lent_in_all()
            for zone, blocks in lent.items():
                claim = self.world.claims[zone.spec.tenant]
                assert blocks <= claim.reserved - claim.held, "lends more than it leaves unused"
            for zone, blocks in borrowed.items():
                claim = self.world.claims[zone.spec.tenant]
                assert blocks <= claim.held - claim.reserved, "borrows more than its surplus"
        if lent:
            self._saw("loans stand")

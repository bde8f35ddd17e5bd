"""What time does to an engine's zones, checked step by step: windows, loans, watermarks."""

from tenantzone_contract.zone_config.config import Watermarks
from tests.reservations import Reservations
from tests.zones.configs import CAPACITY
from tests.zones.history import by_tenant
from tests.zones.history_in_steps import HistoryInSteps


class HistoryInTime(HistoryInSteps):
    """Upkeep, called as housekeeping calls it."""

    def pass_time(self, seconds):
        self.now += seconds
        before = {zone: zone.counters.evicted.get("due", 0) for zone in self.ledger.zones.values()}
        lent = [claim for claim in self.world.claims.values() if claim.lends_unused]
        kept = Reservations(self.ledger.zones.values())
        evictions = self.tenancy.upkeep(self.now, self.free)
        kept.check_kept()
        gone = self.world.let_time_pass(self.now)
        self.seen |= {f"evicted: {reason}" for _, blocks, reason in gone if blocks}
        idle = by_tenant(gone)
        for claim in lent:
            if not claim.quiet and self.world.claims.get(claim.tenant) is claim:
                # One of its own events may have ended the quiet time, or there was none.
                claim.quiet = claim.lends_unused = self.ledger.zones[claim.tenant].quiet
        due = {zone.spec.tenant: zone.counters.evicted.get("due", 0) - count for zone, count in before.items()}
        remaining = list(self.returned(evictions))
        remaining = self._take_off(remaining, {tenant: len(blocks) for tenant, blocks in idle.items()}, idle)
        self._check_sums_of_loans(exact=False)
        remaining = self._take_off_due(remaining, due)
        self.check_overdue()
        self._check_watermark(remaining)
        self.check_ages()

    def check_ages(self):
        """Once time has passed, no block stays cached that was unused for its zone's ttl."""
        for tenant, zone in self.ledger.zones.items():
            ttl, used = zone.spec.retention.ttl_seconds, self.world.claims[tenant].used
            if ttl is not None:
                assert all(used[block] + ttl > self.now for block in zone.cached)

    def _take_off(self, remaining, counts, expected):
        """Checks the first evictions, those caused by time alone, against the reference. Returns the rest."""
        got = {}
        while sum(counts.values()) > 0:
            tenant, blocks = remaining.pop(0)
            counts[tenant] -= len(blocks)
            got.setdefault(tenant, []).extend(blocks)
        assert got == expected
        return remaining

    def _take_off_due(self, remaining, due):
        while sum(due.values()) > 0:
            tenant, blocks = remaining.pop(0)
            self.give_back_due([(self.ledger.zones[tenant], blocks)])
            due[tenant] -= len(blocks)
        return remaining

    def check_overdue(self):
        """An overdue loan stands on blocks in use only, and limits its borrower to what the borrower owns."""
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
        self.reasons()

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

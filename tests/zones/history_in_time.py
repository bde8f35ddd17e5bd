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
        lent = [twin for twin in self.model.zones.values() if twin.lends_unused]
        kept = Reservations(self.ledger.zones.values())
        evictions = self.tenancy.upkeep(self.now, self.free)
        kept.check_kept()
        self.model.let_time_pass(self.now)
        gone = self.model.collect_evictions()
        self.seen |= {f"evicted: {reason}" for _, _, reason in gone}
        idle = by_tenant(gone)
        for twin in lent:
            if not twin.quiet and self.model.zones.get(twin.tenant) is twin:
                # One of its own events may have ended the quiet time, or there was none.
                twin.quiet = twin.lends_unused = self.ledger.zones[twin.tenant].quiet
        due = {zone.spec.tenant: zone.counters.evicted.get("due", 0) - count for zone, count in before.items()}
        remaining = self.returned(evictions)
        remaining = self._take_off(remaining, {tenant: len(blocks) for tenant, blocks in idle.items()}, idle)
        self._check_sums_of_loans(exact=False)
        remaining = self._take_off_due(remaining, due)
        self.check_overdue()
        self._check_watermark(remaining)
        self.check_ages()

    def check_ages(self):
        """Once time has passed, no block stays cached that was unused for its zone's ttl."""
        for tenant, zone in self.ledger.zones.items():
            ttl, used = zone.spec.retention.ttl_seconds, self.model.zones[tenant].used
            if ttl is not None:
                assert all(used[block] + ttl > self.now for block in zone.cached)

    def _take_off(self, remaining, counts, expected):
        """Checks the first evictions, those caused by time alone, against the model. Returns the rest."""
        got = {}
        while sum(counts.values()) > 0:
            tenant, block = remaining.pop(0)
            counts[tenant] -= 1
            got.setdefault(tenant, []).append(block)
        assert got == expected
        return remaining

    def _take_off_due(self, remaining, due):
        while sum(due.values()) > 0:
            tenant, block = remaining.pop(0)
            self.give_back_due([(self.ledger.zones[tenant], [block])])
            due[tenant] -= 1
        return remaining

    def check_overdue(self):
        """An overdue loan stands on blocks in use only, and limits its borrower to what the borrower owns."""
        owed = {}
        for loan in self.tenancy.loans:
            if loan.due is not None and loan.due <= self.now:
                owed[loan.borrower] = owed.get(loan.borrower, 0) + loan.blocks
                self._saw("overdue")
        for tenant, zone in self.ledger.zones.items():
            twin = self.model.zones[tenant]
            assert zone.overdue == owed.get(zone, 0)
            twin.overdue = zone.overdue
            if zone.overdue:
                assert len(twin.in_use) >= twin.reserved + zone.overdue

    def _check_watermark(self, remaining):
        marks = Watermarks() if self.config is None else self.config.pool.watermarks
        if self.free < int(marks.low * CAPACITY):
            self.model.evict_surplus(self.model.zones.values(), int(marks.high * CAPACITY), "watermark")
        expected = self.model.collect_evictions()
        assert remaining == [(tenant, block) for tenant, block, _ in expected]
        if expected:
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
            assert sum(lent.values()) == self.model.on_loan
            for zone, blocks in lent.items():
                twin = self.model.zones[zone.spec.tenant]
                assert blocks <= twin.reserved - twin.held, "lends more than it leaves unused"
            for zone, blocks in borrowed.items():
                twin = self.model.zones[zone.spec.tenant]
                assert blocks <= twin.held - twin.reserved, "borrows more than its surplus"
        if lent:
            self._saw("loans stand")

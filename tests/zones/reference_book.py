"""The loan book the slow way: it scans all zones and all loans each time."""

from collections import Counter

from tenantzone_runtime.zones.blocks.loan import may_borrow
from tenantzone_runtime.zones.model import quota


class ReferenceBook:
    """Loans as lender, borrower and blocks, oldest first."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.loans = {}

    def settle(self, free):
        ledger, totals = self.ledger, self.ledger.totals
        stood_on = totals.promised - (ledger.held_blocks - totals.surplus) - free
        left = total = max(0, min(stood_on, totals.surplus))
        lent, borrowed = Counter(), Counter()
        for (lender, borrower), blocks in list(self.loans.items()):
            surplus = borrower.surplus - borrowed[borrower]
            kept = self.loans[lender, borrower] = min(blocks, self.unused(lender) - lent[lender], surplus, left)
            lent[lender] += kept
            borrowed[borrower] += kept
            left -= kept
            if not kept:
                del self.loans[lender, borrower]
        self.grow(total - sum(self.loans.values()), lent, borrowed)

    def grow(self, missing, lent, borrowed):
        zones = sorted(self.ledger.zones.values(), key=lambda zone: (zone.spec.priority, zone.last_active, zone.number))
        for to_whom in ("SameOrHigherPriority", "AnyPriority", None):
            lenders = [zone for zone in zones if to_whom in (None, zone.spec.lending.borrowers)]
            for borrower in zones:
                while missing > 0 and borrower.surplus > borrowed[borrower]:
                    rooms = {
                        zone: self.unused(zone) - lent[zone] - (0 if to_whom is None else zone.locked)
                        for zone in lenders
                    }
                    lender = next((zone for zone in lenders if rooms[zone] > 0), None)
                    if lender is None or (to_whom is not None and not may_borrow(borrower, lender)):
                        break
                    blocks = min(missing, borrower.surplus - borrowed[borrower], rooms[lender])
                    self.loans[lender, borrower] = self.loans.get((lender, borrower), 0) + blocks
                    lent[lender] += blocks
                    borrowed[borrower] += blocks
                    missing -= blocks

    def unused(self, zone):
        return quota.unused(zone.spec.quota, zone.held) if self.ledger.zones.get(zone.spec.tenant) is zone else 0

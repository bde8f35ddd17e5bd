"""Loans: which zone's surplus uses which other zone's reservation, since when, and until when.

The blocks that a zone holds above its reservation first use the unreserved part of the pool. The rest uses reservations
that their owners do not use: either a quiet zone lends them, or a zone has a new reservation whose blocks other zones
still hold. A loan does not identify blocks. It is a number of blocks between two zones, and a pair of zones has at most
one loan in each direction.

The book is settled from time to time, not with each block. Settling adjusts it to the blocks that zones hold at that
moment, and counts block-seconds for the loans since the last time. Reservations do not depend on the book: blocks that
a lender needs are reclaimed at once by eviction and preemption.

Settling considers only zones that have changed since the last time, their loans, and the zones that lend and borrow the
difference. Its cost does not depend on the number of other zones and loans. When a loan ends, the state of its pair is
removed. Its block-seconds are then in the trail, and in the counters of both zones.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from tenantzone_contract.zone_config.zone_terms import Borrowers
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.blocks.loan import Loan, lends_for_some_time, loan_usage, may_borrow
from tenantzone_runtime.zones.blocks.victims import VictimOrder
from tenantzone_runtime.zones.model import quota
from tenantzone_runtime.zones.model.zone import Zone


class LoanBook:
    """The loans of one engine.

    Args:
        ledger: ledger with all zones.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._loans: dict[tuple[Zone, Zone], Loan] = {}
        self._loans_of: dict[Zone, dict[Loan, None]] = {}
        """By zone, the loans in which it is the lender or the borrower."""
        self._blocks = 0
        """Number of blocks of all loans."""
        self._begun = 0
        self._needing = VictimOrder()
        """Zones with surplus blocks that no loan covers yet."""
        self._offering: dict[Borrowers, VictimOrder] = {
            "SameOrHigherPriority": VictimOrder(),
            "AnyPriority": VictimOrder(),
        }
        """Zones that offer blocks, by ``lending.borrowers``. Zones with a stricter value are used first."""
        self._lending = VictimOrder()
        """Zones with unused reservation for more loans, whether they offer it or not."""

    def __iter__(self) -> Iterator[Loan]:
        """Iterate over the current loans, oldest first."""
        return iter(self._loans.values())

    def settle(self, free: int) -> None:
        """Adjust the loans to the blocks that zones hold now; ``free`` blocks are free."""
        totals = self._ledger.totals
        self.look_at(totals.take_changed())
        # The reserved blocks that other zones hold: all reserved blocks, minus those that their owners hold, minus the
        # free blocks.
        stood_on = totals.promised - (self._ledger.held_blocks - totals.surplus) - free
        total = max(0, min(stood_on, totals.surplus))
        self._cut(self._blocks - total)
        self._grow(total - self._blocks)

    def look_at(self, changed: Sequence[Zone]) -> None:
        """Reduce the loans of changed zones as needed, and update these zones' places as lenders and borrowers."""
        self._shrink(changed)
        for zone in changed:
            self._place(zone)

    def repay(self, loan: Loan, blocks: int) -> None:
        """Reduce a loan by blocks that the borrower has returned, and end the loan if none are left."""
        overdue = loan.is_due(self._ledger.now)
        lender, borrower = loan.lender.spec.tenant, loan.borrower.spec.tenant
        self._change(loan, -blocks)
        self._ledger.trail.repaid(lender, borrower, blocks, self._ledger.now - loan.since, overdue=overdue)
        if not loan.blocks:
            self._end(loan)

    def due(self) -> list[Loan]:
        """Returns the loans that are due, oldest first."""
        return [loan for loan in self if loan.is_due(self._ledger.now)]

    def _shrink(self, changed: Iterable[Zone]) -> None:
        """Reduce each loan that exceeds the lender's unused reservation or the borrower's surplus."""
        lendable = {zone: room for zone in changed if zone.lent > (room := self._unused(zone))}
        needed = {zone: zone.surplus for zone in changed if zone.borrowed > zone.surplus}
        loans = {loan for zone in (*lendable, *needed) for loan in self._loans_of[zone]}
        for loan in self._kept_first(loans):
            kept = loan.blocks
            for zone, rooms in ((loan.lender, lendable), (loan.borrower, needed)):
                kept = min(kept, rooms.get(zone, kept))
            for zone, rooms in ((loan.lender, lendable), (loan.borrower, needed)):
                if zone in rooms:
                    rooms[zone] -= kept
            if kept < loan.blocks:
                self.repay(loan, loan.blocks - kept)

    def _kept_first(self, loans: Iterable[Loan]) -> list[Loan]:
        """Returns loans in the order in which to keep them: first loans that are not due, last loans past their grace.

        Within each kind, the oldest loan comes first.
        """
        now = self._ledger.now

        def order(loan: Loan) -> tuple[bool, bool, int]:
            return loan.is_past_grace(now), loan.is_due(now), loan.number

        return sorted(loans, key=order)

    def covers(self, zone: Zone, borrower: Zone) -> int:
        """Returns how many surplus blocks of a zone can be evicted to reduce a borrower's due loans by as many blocks.

        These are the blocks that use no other zone's reservation, and then those that use the reservations of lenders
        that can take over such a loan.
        """
        blocks = zone.surplus - zone.borrowed
        own = [loan for loan in self._loans_of.get(zone, ()) if loan.borrower is zone]
        for loan in reversed(self._kept_first(own)):
            if not self.takes_over(loan.lender, borrower) or self._offered(loan.lender) < 0:
                break
            blocks += loan.blocks
        return blocks

    def takes_over(self, lender: Zone, borrower: Zone) -> bool:
        """Whether a lender can take over due loans of a borrower, up to the number of blocks that it offers."""
        return not self._has_due(lender, borrower) and may_borrow(borrower, lender) and lends_for_some_time(lender)

    def extend(self) -> None:
        """Let zones that offer blocks for some time take over due loans, so that no blocks need be reclaimed for these.

        Loans past their grace period come first. A lender that offers nothing, or has a due loan with the same
        borrower, is checked only once for each borrower, regardless of the borrower's number of due loans.
        """
        now, groups = self._ledger.now, dict[tuple[bool, Zone], list[Loan]]()
        for loan in reversed(self._kept_first(self.due())):
            groups.setdefault((loan.is_past_grace(now), loan.borrower), []).append(loan)
        if not groups:
            return
        offers = [dict.fromkeys(filter(lends_for_some_time, offering)) for offering in self._offering.values()]
        for (_, borrower), loans in groups.items():
            for lenders in offers:
                self._take_over(borrower, loans, lenders)

    def _take_over(self, borrower: Zone, loans: Iterable[Loan], lenders: dict[Zone, None]) -> None:
        """Let these lenders, lowest priority first, take over these loans of a borrower.

        Lenders that have no more blocks to offer are removed from ``lenders``.
        """
        left = deque(loan for loan in loans if loan.blocks)
        exhausted = []
        for lender in lenders:
            if not left or not (may_borrow(borrower, lender) or not self._offered(lender)):
                break
            while left and not self._has_due(lender, borrower) and (blocks := self._offered(lender)):
                loan = left[0]
                blocks = min(blocks, loan.blocks)
                self.repay(loan, blocks)
                self._lend(lender, borrower, blocks)
                if not loan.blocks:
                    left.popleft()
            if not self._offered(lender):
                exhausted.append(lender)
        for lender in exhausted:
            del lenders[lender]

    def _has_due(self, lender: Zone, borrower: Zone) -> bool:
        """Whether a loan between the two zones is due, so that blocks added to it would be due as well."""
        loan = self._loans.get((lender, borrower))
        return loan is not None and loan.is_due(self._ledger.now)

    def _cut(self, excess: int) -> None:
        """Reduce loans by ``excess`` blocks, which use no reservation now: first due loans, then the newest ones."""
        if excess <= 0:
            return
        for loan in [*reversed(self._kept_first(self.due())), *reversed(self._loans.values())]:
            if blocks := min(excess, loan.blocks):
                self.repay(loan, blocks)
                excess -= blocks
            if not excess:
                return

    def _grow(self, missing: int) -> None:
        """Find lenders for ``missing`` surplus blocks: first zones that offer blocks, then any with room to lend."""
        for offering in self._offering.values():
            missing = self._match(missing, offering, self._offered, may_borrow)
        self._match(missing, self._lending, self._lendable, lambda borrower, lender: True)

    def _match(
        self,
        missing: int,
        lending: VictimOrder,
        room: Callable[[Zone], int],
        may_borrow: Callable[[Zone, Zone], bool],
    ) -> int:
        """Pair borrowers with lenders, both lowest priority first, until ``missing`` blocks are matched.

        Each step exhausts a lender or a borrower, which then leaves its order, or else skips a borrower.

        Returns:
            The number of blocks that are still missing.
        """
        passed_over = 0
        while missing > 0 and (borrower := self._needing.at(passed_over)) and (lender := lending.first()):
            if may_borrow(borrower, lender):
                blocks = min(missing, borrower.surplus - borrower.borrowed, room(lender))
                assert blocks > 0, "only zones with a need or with room are in the orders"
                self._lend(lender, borrower, blocks)
                missing -= blocks
            else:
                passed_over += 1
        return missing

    def _lend(self, lender: Zone, borrower: Zone, blocks: int) -> None:
        loan = self._loans.get((lender, borrower)) or self._begin(lender, borrower)
        self._change(loan, blocks)
        due_in = None if loan.due is None else loan.due - self._ledger.now
        self._ledger.trail.lent(lender.spec.tenant, borrower.spec.tenant, blocks, due_in)

    def _begin(self, lender: Zone, borrower: Zone) -> Loan:
        now, terms = self._ledger.now, lender.spec.lending
        due = None if terms.max_loan_seconds is None else now + terms.max_loan_seconds
        grace_until = None if due is None else due + terms.grace_seconds
        self._begun += 1
        loan = Loan(self._begun, lender, borrower, 0, now, due, grace_until, accrued_until=now, counting_since=now)
        unreported = self._ledger.trail.resume_loan(lender.spec.tenant, borrower.spec.tenant)
        if unreported is not None:
            loan.counting_since, loan.block_seconds = unreported.counting_since, unreported.block_seconds
        self._loans[lender, borrower] = loan
        for zone in (lender, borrower):
            self._loans_of.setdefault(zone, {})[loan] = None
        return loan

    def _end(self, loan: Loan) -> None:
        del self._loans[loan.lender, loan.borrower]
        for zone in (loan.lender, loan.borrower):
            del self._loans_of[zone][loan]
            if not self._loans_of[zone]:
                del self._loans_of[zone]
        if loan.block_seconds:
            self._ledger.trail.loan_over(loan_usage(loan, loan.block_seconds))

    def _change(self, loan: Loan, blocks: int) -> None:
        """Add blocks to a loan. A negative number reduces the loan."""
        self._ledger.accrue(loan.lender)
        self._ledger.accrue(loan.borrower)
        loan.accrue(self._ledger.now)
        loan.blocks += blocks
        loan.lender.lent += blocks
        loan.borrower.borrowed += blocks
        self._blocks += blocks
        self._place(loan.lender)
        self._place(loan.borrower)

    def _place(self, zone: Zone) -> None:
        """Add the zone to the orders of zones that need, offer and can lend blocks, or remove it from them."""
        self._needing.put(zone, zone.surplus > zone.borrowed)
        for borrowers, offering in self._offering.items():
            offering.put(zone, zone.spec.lending.borrowers == borrowers and self._offered(zone) > 0)
        self._lending.put(zone, self._lendable(zone) > 0)

    def _offered(self, zone: Zone) -> int:
        """Returns the number of blocks that a zone offers to lend, without the blocks that are locked for it now."""
        return self._lendable(zone) - zone.locked

    def _lendable(self, zone: Zone) -> int:
        return self._unused(zone) - zone.lent

    def _unused(self, zone: Zone) -> int:
        return quota.unused(zone.spec.quota, zone.held) if self._ledger.is_present(zone) else 0

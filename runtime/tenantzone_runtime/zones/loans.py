"""Loans: which zone's surplus uses which other zone's reservation, since when, and until when.

What a zone holds above its reservation first uses the unreserved part of the pool. The rest uses reservations that
their owners do not use: lent by quiet zones, or owed to a zone whose new reservation is held by others. Loans do not
name blocks: a loan is an amount between two zones, one at a time per pair.

The book is settled from time to time, not with each block: it is adjusted to what zones hold at that moment, and
block-seconds are counted for the loans since the last time. The zones' promises do not depend on it: what a lender
needs is reclaimed by eviction and preemption at once, whatever the book says.

Settling considers zones that have changed since the last time, their loans, and the zones that lend and borrow what is
then missing: it costs the same however many other zones and loans there are. The state of a pair is removed with its
loan: its block-seconds are then in the trail, and those of each zone in its counters.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from tenantzone_contract.zone_terms import Borrowers
from tenantzone_runtime.zones import quota
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.loan import Loan, lends_for_some_time, loan_usage, may_borrow
from tenantzone_runtime.zones.victims import VictimOrder
from tenantzone_runtime.zones.zone import Zone


class LoanBook:
    """The loans of one engine.

    Args:
        ledger: who holds what.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._loans: dict[tuple[Zone, Zone], Loan] = {}
        self._loans_of: dict[Zone, dict[Loan, None]] = {}
        """The loans that a zone is the lender or the borrower of."""
        self._blocks = 0
        """The blocks of all loans."""
        self._begun = 0
        self._needing = VictimOrder()
        """Zones with surplus for which there is no loan yet."""
        self._offering: dict[Borrowers, VictimOrder] = {
            "SameOrHigherPriority": VictimOrder(),
            "AnyPriority": VictimOrder(),
        }
        """Zones with more to lend, by the zones that they lend to; those with stricter terms are asked first."""
        self._lending = VictimOrder()
        """Zones with room on their reservation, offered or not."""

    def __iter__(self) -> Iterator[Loan]:
        """Yields the current loans, oldest first."""
        return iter(self._loans.values())

    def settle(self, free: int) -> None:
        """Adjust the loans to what zones hold now, with ``free`` free blocks."""
        totals = self._ledger.totals
        self.look_at(totals.take_changed())
        # The part of all reservations that others use: reservations less their own use, less the free blocks.
        stood_on = totals.promised - (self._ledger.held_blocks - totals.surplus) - free
        total = max(0, min(stood_on, totals.surplus))
        self._cut(self._blocks - total)
        self._grow(total - self._blocks)

    def look_at(self, changed: Sequence[Zone]) -> None:
        """Keep the loans of zones that have changed as far as these zones have room for them."""
        self._shrink(changed)
        for zone in changed:
            self._place(zone)

    def repay(self, loan: Loan, blocks: int) -> None:
        """Subtract blocks that the borrower has returned from a loan."""
        overdue = loan.is_due(self._ledger.now)
        lender, borrower = loan.lender.spec.tenant, loan.borrower.spec.tenant
        self._change(loan, -blocks)
        self._ledger.trail.repaid(lender, borrower, blocks, self._ledger.now - loan.since, overdue=overdue)
        if not loan.blocks:
            self._end(loan)

    def due(self) -> list[Loan]:
        """Loans whose time is over."""
        return [loan for loan in self if loan.is_due(self._ledger.now)]

    def _shrink(self, changed: Iterable[Zone]) -> None:
        """Reduce each loan to what its lender and its borrower still have room for."""
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
        """Returns loans in the order of being kept: loans past their grace last, before them loans that are due.

        Within each kind the oldest comes first.
        """
        now = self._ledger.now

        def order(loan: Loan) -> tuple[bool, bool, int]:
            return loan.is_past_grace(now), loan.is_due(now), loan.number

        return sorted(loans, key=order)

    def covers(self, zone: Zone, borrower: Zone) -> int:
        """Returns how many blocks evicted above a zone's reservation reduce a borrower's due loans by as many.

        First come blocks on no zone's reservation, then those on reservations of lenders that take such a loan over.
        """
        blocks = zone.surplus - zone.borrowed
        own = [loan for loan in self._loans_of.get(zone, ()) if loan.borrower is zone]
        for loan in reversed(self._kept_first(own)):
            if not self.takes_over(loan.lender, borrower) or self._offered(loan.lender) < 0:
                break
            blocks += loan.blocks
        return blocks

    def takes_over(self, lender: Zone, borrower: Zone) -> bool:
        """Whether a lender takes over a borrower's loans that are due, as far as it offers blocks."""
        return not self._has_due(lender, borrower) and may_borrow(borrower, lender) and lends_for_some_time(lender)

    def extend(self) -> None:
        """Let zones that offer blocks for a fixed time take over due loans, so that nothing need be reclaimed.

        Loans past their grace come first. A lender that offers nothing, or has a due loan with the same borrower, is
        skipped once for each borrower, however many of its loans are due.
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

        Lenders that have nothing to offer any more are removed.
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
        """Whether a loan between the two zones is due, so that what they add to it is due as well."""
        loan = self._loans.get((lender, borrower))
        return loan is not None and loan.is_due(self._ledger.now)

    def _cut(self, excess: int) -> None:
        """End loans of ``excess`` blocks that use no reservation: due loans first, then the newest ones."""
        if excess <= 0:
            return
        for loan in [*reversed(self._kept_first(self.due())), *reversed(self._loans.values())]:
            if blocks := min(excess, loan.blocks):
                self.repay(loan, blocks)
                excess -= blocks
            if not excess:
                return

    def _grow(self, missing: int) -> None:
        """Find lenders for surplus without one: zones that offer blocks first, then any whose reservation it uses."""
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

        Each step uses up a lender or a borrower, which is then removed from its order, or skips a borrower.

        Returns:
            The blocks that are still missing.
        """
        passed_over = 0
        while missing > 0 and (borrower := self._needing.at(passed_over)) and (lender := lending.first()):
            if may_borrow(borrower, lender):
                blocks = min(missing, borrower.surplus - borrower.borrowed, room(lender))
                assert blocks > 0, "who has no need or no room is in no order"
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
        """Add blocks to a loan, or take some off."""
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
        """Enter the zone among those that need, offer and can lend, or remove it."""
        self._needing.put(zone, zone.surplus > zone.borrowed)
        for borrowers, offering in self._offering.items():
            offering.put(zone, zone.spec.lending.borrowers == borrowers and self._offered(zone) > 0)
        self._lending.put(zone, self._lendable(zone) > 0)

    def _offered(self, zone: Zone) -> int:
        """Returns the blocks that a zone offers to lend, without those that it keeps to itself now."""
        return self._lendable(zone) - zone.locked

    def _lendable(self, zone: Zone) -> int:
        return self._unused(zone) - zone.lent

    def _unused(self, zone: Zone) -> int:
        return quota.unused(zone.spec.quota, zone.held) if self._ledger.is_present(zone) else 0

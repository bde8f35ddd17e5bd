"""Loans: which zone's surplus stands on which other zone's reservation, since when, and until when.

What a zone holds above its reservation stands on the unreserved part of the pool first. What is more than that stands
on reservations that their owners do not use: lent by quiet zones, or owed to a zone whose reservation came to be under
others' blocks. Blocks bear no names here: a loan is an amount between two zones, one at a time per pair.

The book is settled from time to time, not with each block: it is brought in line with what zones hold at that moment,
and block-seconds are counted for what stood in it since the last time. The zones' promises do not depend on it: what a
lender needs is reclaimed by eviction and preemption at once, whatever the book says.

Settling looks at zones that have changed since the last time, at their loans, and at those who lend and borrow what is
missing then: it costs the same however many other zones and loans there are. What is known of a pair goes with its
loan: when that is over, its block-seconds are in the trail, and those of each zone in its counters.
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
        """Those that a zone is the lender or the borrower of."""
        self._blocks = 0
        """Of all loans."""
        self._begun = 0
        self._needing = VictimOrder()
        """Zones with surplus for which there is no loan yet."""
        self._offering: dict[Borrowers, VictimOrder] = {
            "SameOrHigherPriority": VictimOrder(),
            "AnyPriority": VictimOrder(),
        }
        """Zones with more to lend, by whom they lend to; those that are more particular are asked first."""
        self._lending = VictimOrder()
        """Zones on whose reservation there is room, offered or not."""

    def __iter__(self) -> Iterator[Loan]:
        """Loans that stand now, oldest first."""
        return iter(self._loans.values())

    def settle(self, free: int) -> None:
        """Bring the loans in line with what zones hold now, ``free`` blocks being free."""
        totals = self._ledger.totals
        self.look_at(totals.take_changed())
        # All reservations, less what is used of them, less what is free: the part of them that others stand on.
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
        """Take blocks that the borrower has given back off a loan."""
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
        """Keep of each loan what its lender and its borrower still have room for."""
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
        """Loans in the order in which they are kept: those past their grace last, before them those that are due.

        Of each kind the oldest comes first.
        """
        now = self._ledger.now

        def order(loan: Loan) -> tuple[bool, bool, int]:
            return loan.is_past_grace(now), loan.is_due(now), loan.number

        return sorted(loans, key=order)

    def covers(self, zone: Zone, borrower: Zone) -> int:
        """How many blocks above its reservation a zone can let go to have as many less of a borrower's on due loans.

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
        """Let zones that offer blocks for some time take over loans that are due, so that nothing need be taken back.

        For what is past its grace first. A lender that offers nothing, or has a loan with the borrower that is due
        itself, is passed over once for each borrower, however many of its loans are due.
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
        """Let these lenders, lowest priority first, lend a borrower what these loans are of.

        Lenders that have nothing to offer any more are taken out.
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
        """End loans of ``excess`` blocks that stand on no reservation: those that are due, then the newest ones."""
        if excess <= 0:
            return
        for loan in [*reversed(self._kept_first(self.due())), *reversed(self._loans.values())]:
            if blocks := min(excess, loan.blocks):
                self.repay(loan, blocks)
                excess -= blocks
            if not excess:
                return

    def _grow(self, missing: int) -> None:
        """Find lenders for surplus that has none: those who offer it, then any on whose reservation it stands."""
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
        """Pair borrowers with lenders, both lowest priority first, until what is ``missing`` has found each other.

        Each step uses up a lender or a borrower, which then is no more in its order, or passes over a borrower.

        Returns:
            What is still missing.
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
        untold = self._ledger.trail.resume_loan(lender.spec.tenant, borrower.spec.tenant)
        if untold is not None:
            loan.counting_since, loan.block_seconds = untold.counting_since, untold.block_seconds
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
        """Enter the zone among those that need, offer and can lend, or take it out."""
        self._needing.put(zone, zone.surplus > zone.borrowed)
        for borrowers, offering in self._offering.items():
            offering.put(zone, zone.spec.lending.borrowers == borrowers and self._offered(zone) > 0)
        self._lending.put(zone, self._lendable(zone) > 0)

    def _offered(self, zone: Zone) -> int:
        """The blocks that a zone offers to lend, without those that it keeps to itself now."""
        return self._lendable(zone) - zone.locked

    def _lendable(self, zone: Zone) -> int:
        return self._unused(zone) - zone.lent

    def _unused(self, zone: Zone) -> int:
        return quota.unused(zone.spec.quota, zone.held) if self._ledger.is_present(zone) else 0

"""Loans: which zone's surplus stands on which other zone's reservation, since when, and until when.

What a zone holds above its reservation stands on the unreserved part of the pool first. What is more than that stands
on reservations that their owners do not use: lent by quiet zones, or owed to a zone whose reservation came to be under
others' blocks. Blocks bear no names here: a loan is an amount between two zones, one at a time per pair.

The book is settled from time to time, not with each block: it is brought in line with what zones hold at that moment,
and block-seconds are counted for what stood in it since the last time. The zones' promises do not depend on it: what a
lender needs is reclaimed by eviction and preemption at once, whatever the book says.

What is known of a pair goes with its loan: when that is over, its block-seconds are in the trail, and those of each
zone in its counters.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tenantzone_runtime.zones import quota
from tenantzone_runtime.zones.audit import LoanUsage
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.zone import Zone


@dataclass(slots=True, eq=False)
class Loan:
    """Blocks of ``lender``'s reservation that ``borrower`` holds. Further blocks come under the same due time."""

    lender: Zone
    borrower: Zone
    blocks: int
    since: float
    due: float | None
    """None: when the lender asks for it."""
    grace_until: float | None
    """From then on running requests of the borrower are preempted for it."""
    counting_since: float
    block_seconds: float = 0.0
    """Blocks times seconds since ``counting_since``: since the loan began, or an earlier one whose sum was not told."""
    told: float = 0.0
    """Of the block-seconds, those that the journal has."""

    def usage(self) -> LoanUsage:
        return LoanUsage(self.lender.spec.tenant, self.borrower.spec.tenant, self.counting_since, self.block_seconds)


def may_borrow(borrower: Zone, lender: Zone) -> bool:
    """High priority may borrow from low and equal; low from high only where the lender lets it."""
    return borrower.spec.priority >= lender.spec.priority or lender.spec.lending.borrowers == "AnyPriority"


class LoanBook:
    """The loans of one engine.

    Args:
        ledger: who holds what.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._loans: dict[tuple[Zone, Zone], Loan] = {}
        self._settled = ledger.now

    def __iter__(self) -> Iterator[Loan]:
        """Loans that stand now, oldest first."""
        return iter(self._loans.values())

    def settle(self, free: int) -> None:
        """Bring the loans in line with what zones hold now, ``free`` blocks being free."""
        self._accrue()
        standings = self._ledger.standings
        # All reservations, less what is used of them, less what is free: the part of them that others stand on.
        stood_on = standings.promised - (self._ledger.held_blocks - standings.surplus) - free
        total = max(0, min(stood_on, standings.surplus))
        if not total and not self._loans:
            return
        lent, borrowed = self._shrink(total)
        missing = total - sum(loan.blocks for loan in self)
        if missing > 0:
            self._grow(missing, lent, borrowed)

    def repay(self, loan: Loan, blocks: int) -> None:
        """The borrower has given back so many blocks of a loan."""
        loan.blocks -= blocks
        overdue = loan.due is not None and self._ledger.now >= loan.due
        lender, borrower = loan.lender.spec.tenant, loan.borrower.spec.tenant
        if blocks:
            after = self._ledger.now - loan.since
            self._ledger.trail.repaid(lender, borrower, blocks, after, overdue=overdue)
        if not loan.blocks:
            del self._loans[loan.lender, loan.borrower]
            if loan.block_seconds:
                self._ledger.trail.loan_over(loan.usage())

    def due(self) -> list[Loan]:
        """Loans whose time is over."""
        return [loan for loan in self if loan.due is not None and loan.due <= self._ledger.now]

    def _accrue(self) -> None:
        elapsed, self._settled = self._ledger.now - self._settled, self._ledger.now
        for loan in self:
            block_seconds = loan.blocks * elapsed
            loan.block_seconds += block_seconds
            loan.lender.counters.lent_block_seconds += block_seconds
            loan.borrower.counters.borrowed_block_seconds += block_seconds

    def _shrink(self, total: int) -> tuple[Counter[Zone], Counter[Zone]]:
        """Keep of each loan what lender, borrower and total still have room for, the oldest first.

        Returns:
            What each zone lends, and what each borrows.
        """
        lent: Counter[Zone] = Counter()
        borrowed: Counter[Zone] = Counter()
        for loan in list(self):
            lendable = _unused(loan.lender) - lent[loan.lender]
            kept = min(loan.blocks, lendable, loan.borrower.surplus - borrowed[loan.borrower], total)
            if kept < loan.blocks:
                self.repay(loan, loan.blocks - kept)
            lent[loan.lender] += kept
            borrowed[loan.borrower] += kept
            total -= kept
        return lent, borrowed

    def _grow(self, missing: int, lent: Counter[Zone], borrowed: Counter[Zone]) -> None:
        """Find lenders for surplus that has none: those who offer it, then any on whose reservation it stands."""
        zones = sorted(
            self._ledger.zones.values(), key=lambda zone: (zone.spec.priority, zone.last_active, zone.number)
        )
        needs = {zone: zone.surplus - borrowed[zone] for zone in zones if zone.surplus > borrowed[zone]}
        # Without the blocks that its owner keeps to itself now.
        offers = {zone: _unused(zone) - zone.locked - lent[zone] for zone in zones}
        for borrowers in ("SameOrHigherPriority", "AnyPriority"):
            lenders = {zone: offer for zone, offer in offers.items() if zone.spec.lending.borrowers == borrowers}
            for lender, borrower, blocks in _match(lenders, needs, missing, may_borrow):
                self._lend(lender, borrower, blocks)
                lent[lender] += blocks
                missing -= blocks
        owed = {zone: _unused(zone) - lent[zone] for zone in zones}
        for lender, borrower, blocks in _match(owed, needs, missing, lambda borrower, lender: True):
            self._lend(lender, borrower, blocks)

    def _lend(self, lender: Zone, borrower: Zone, blocks: int) -> None:
        loan = self._loans.get((lender, borrower))
        if loan is None:
            loan = self._loans[lender, borrower] = self._begin(lender, borrower)
        loan.blocks += blocks
        due_in = None if loan.due is None else loan.due - self._ledger.now
        self._ledger.trail.lent(lender.spec.tenant, borrower.spec.tenant, blocks, due_in)

    def _begin(self, lender: Zone, borrower: Zone) -> Loan:
        now, terms = self._ledger.now, lender.spec.lending
        due = None if terms.max_loan_seconds is None else now + terms.max_loan_seconds
        grace_until = None if due is None else due + terms.grace_seconds
        untold = self._ledger.trail.resume_loan(lender.spec.tenant, borrower.spec.tenant)
        if untold is None:
            return Loan(lender, borrower, 0, now, due, grace_until, counting_since=now)
        return Loan(lender, borrower, 0, now, due, grace_until, untold.counting_since, untold.block_seconds)


def _unused(zone: Zone) -> int:
    return quota.unused(zone.spec.quota, zone.held)


def _match(
    rooms: dict[Zone, int], needs: dict[Zone, int], max_blocks: int, may_borrow: Callable[[Zone, Zone], bool]
) -> Iterator[tuple[Zone, Zone, int]]:
    """Pair borrowers with lenders, both lowest priority first, until ``max_blocks`` blocks have found each other.

    Each step uses up a lender or a borrower, so that it ends after as many as there are of both. ``needs`` is brought
    up to date.
    """
    lenders = deque(lender for lender, room in rooms.items() if room > 0)
    for borrower in needs:
        while max_blocks and needs[borrower] and lenders and may_borrow(borrower, lenders[0]):
            lender = lenders[0]
            blocks = min(max_blocks, needs[borrower], rooms[lender])
            yield lender, borrower, blocks
            max_blocks -= blocks
            needs[borrower] -= blocks
            rooms[lender] -= blocks
            if not rooms[lender]:
                lenders.popleft()

"""One loan: blocks of a zone's reservation that another zone holds, with its terms and block-seconds."""

from dataclasses import dataclass

from tenantzone_runtime.zones.audit.events import LoanUsage
from tenantzone_runtime.zones.model.zone import Zone


@dataclass(slots=True, eq=False)
class Loan:
    """A loan: blocks of ``lender``'s reservation that ``borrower`` holds. Blocks added later have the same due time."""

    number: int
    """Sequence number of the loan."""
    lender: Zone
    borrower: Zone
    blocks: int
    since: float
    due: float | None
    """Time at which the loan is due. If None, it is due when the lender needs the blocks."""
    grace_until: float | None
    """Time from which running requests of the borrower are preempted for the loan."""
    accrued_until: float
    """Time at which ``block_seconds`` was last updated."""
    counting_since: float
    block_seconds: float = 0.0
    """Blocks times seconds since ``counting_since``, when this loan or an earlier unreported loan began."""
    reported: float = 0.0
    """Block-seconds that were last written to the journal."""

    def is_due(self, now: float) -> bool:
        """Whether the loan is due."""
        return self.due is not None and self.due <= now

    def is_past_grace(self, now: float) -> bool:
        """Whether the loan's grace period is over, so that running requests must be preempted for it."""
        return self.grace_until is not None and self.grace_until <= now

    def accrue(self, now: float) -> None:
        """Update the loan's block-seconds; to be called before its number of blocks changes."""
        self.block_seconds += self.blocks * (now - self.accrued_until)
        self.accrued_until = now

    def update_reported(self, now: float) -> bool:
        """Update ``reported``; returns whether the loan's block-seconds have grown since they were last reported."""
        self.accrue(now)
        is_new = self.block_seconds != self.reported
        self.reported = self.block_seconds
        return is_new


def loan_usage(loan: Loan, block_seconds: float) -> LoanUsage:
    """Returns the journal's event of a loan's usage."""
    return LoanUsage(loan.lender.spec.tenant, loan.borrower.spec.tenant, loan.counting_since, block_seconds)


def may_borrow(borrower: Zone, lender: Zone) -> bool:
    """Whether a zone may borrow from a lender: if the lender's priority isn't higher, or its terms allow any."""
    return borrower.spec.priority >= lender.spec.priority or lender.spec.lending.borrowers == "AnyPriority"


def lends_for_some_time(zone: Zone) -> bool:
    """Whether a zone's loans last for some time, and are not due at once."""
    seconds = zone.spec.lending.max_loan_seconds
    return seconds is None or seconds > 0

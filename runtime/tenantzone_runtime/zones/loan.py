"""One loan: blocks of a zone's reservation that another zone holds, with its terms and block-seconds."""

from dataclasses import dataclass

from tenantzone_runtime.zones.audit import LoanUsage
from tenantzone_runtime.zones.zone import Zone


@dataclass(slots=True, eq=False)
class Loan:
    """A loan: blocks of ``lender``'s reservation that ``borrower`` holds; blocks added later have the same due time."""

    number: int
    """Grows from loan to loan."""
    lender: Zone
    borrower: Zone
    blocks: int
    since: float
    due: float | None
    """When it is due; None: when the lender asks for it."""
    grace_until: float | None
    """The time after which running requests of the borrower are preempted for it."""
    accrued_until: float
    """When ``block_seconds`` were last updated."""
    counting_since: float
    block_seconds: float = 0.0
    """Blocks times seconds since ``counting_since``: since the loan began, or an earlier unreported one."""
    reported: float = 0.0
    """The block-seconds that the journal has."""

    def is_due(self, now: float) -> bool:
        """Whether the loan's time is over."""
        return self.due is not None and self.due <= now

    def is_past_grace(self, now: float) -> bool:
        """Whether the loan's grace is over, so that running requests must be preempted for it."""
        return self.grace_until is not None and self.grace_until <= now

    def accrue(self, now: float) -> None:
        """Bring the loan's block-seconds up to date; called before any change of its blocks."""
        self.block_seconds += self.blocks * (now - self.accrued_until)
        self.accrued_until = now

    def update_reported(self, now: float) -> bool:
        """Whether the loan has grown since it was last reported; if so, ``reported`` is brought up to date."""
        self.accrue(now)
        is_new = self.block_seconds != self.reported
        self.reported = self.block_seconds
        return is_new


def loan_usage(loan: Loan, block_seconds: float) -> LoanUsage:
    """Returns the journal's event of a loan's usage."""
    return LoanUsage(loan.lender.spec.tenant, loan.borrower.spec.tenant, loan.counting_since, block_seconds)


def may_borrow(borrower: Zone, lender: Zone) -> bool:
    """Whether one zone may borrow from another: from lower or equal priority, and from higher if its terms allow it."""
    return borrower.spec.priority >= lender.spec.priority or lender.spec.lending.borrowers == "AnyPriority"


def lends_for_some_time(zone: Zone) -> bool:
    """Whether a zone lends for a fixed time, so that its loans are not due at once."""
    seconds = zone.spec.lending.max_loan_seconds
    return seconds is None or seconds > 0

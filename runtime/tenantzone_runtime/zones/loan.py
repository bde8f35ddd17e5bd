"""One loan: blocks of a zone's reservation that another zone holds, on which terms, and what it has come to."""

from dataclasses import dataclass

from tenantzone_runtime.zones.audit import LoanUsage
from tenantzone_runtime.zones.zone import Zone


@dataclass(slots=True, eq=False)
class Loan:
    """A loan: blocks of ``lender``'s reservation that ``borrower`` holds; further ones come under the same due time."""

    number: int
    """Grows from loan to loan."""
    lender: Zone
    borrower: Zone
    blocks: int
    since: float
    due: float | None
    """None: when the lender asks for it."""
    grace_until: float | None
    """From then on running requests of the borrower are preempted for it."""
    accrued_until: float
    """When ``block_seconds`` were added up last."""
    counting_since: float
    block_seconds: float = 0.0
    """Blocks times seconds since ``counting_since``: since the loan began, or an earlier unreported one."""
    told: float = 0.0
    """Of the block-seconds, those that the journal has."""

    def is_due(self, now: float) -> bool:
        """Whether the loan's time is over."""
        return self.due is not None and self.due <= now

    def is_past_grace(self, now: float) -> bool:
        """Whether the loan's grace is over, so that running requests must be preempted for it."""
        return self.grace_until is not None and self.grace_until <= now

    def accrue(self, now: float) -> None:
        """Bring the loan's block-seconds up to date; whatever changes the blocks does so first."""
        self.block_seconds += self.blocks * (now - self.accrued_until)
        self.accrued_until = now

    def tell(self, now: float) -> bool:
        """Whether the loan has grown since it was last reported; if so, ``told`` is brought up to date."""
        self.accrue(now)
        is_new = self.block_seconds != self.told
        self.told = self.block_seconds
        return is_new


def loan_usage(loan: Loan, block_seconds: float) -> LoanUsage:
    """The journal's event of what a loan has come to."""
    return LoanUsage(loan.lender.spec.tenant, loan.borrower.spec.tenant, loan.counting_since, block_seconds)


def may_borrow(borrower: Zone, lender: Zone) -> bool:
    """Whether one zone may borrow from another: high priority from low and equal, low from high if its terms let it."""
    return borrower.spec.priority >= lender.spec.priority or lender.spec.lending.borrowers == "AnyPriority"


def lends_for_some_time(zone: Zone) -> bool:
    """Whether a zone lends for some time, so that what it lends is not due at once."""
    seconds = zone.spec.lending.max_loan_seconds
    return seconds is None or seconds > 0

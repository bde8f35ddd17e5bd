"""What zones and loans have used, for the journal: only what has changed since it was told last, in slices.

A zone that holds nothing and asks for nothing has nothing to tell. Between two slices anything may happen: a zone or a
loan that is over before its turn has told what it came to when it ended, and one that is new has its turn next time.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from tenantzone_runtime.zones.audit import Event, LoanUsage
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.loans import Loan, LoanBook

T = TypeVar("T")

MAX_AT_ONCE: Final = 250
"""Zones, or loans, that are looked at without a pause: less than a millisecond's work."""


def tell_usage(ledger: Ledger, loans: LoanBook, at_once: int) -> Iterator[list[Event]]:
    """What has been used up to now, ``at_once`` zones or loans looked at for each item."""
    for zones in _slices(list(ledger.zones.values()), at_once):
        yield [usage for zone in zones if (usage := ledger.tell_usage(zone)) is not None]
    for some in _slices(list(loans), at_once):
        yield [told for loan in some if (told := _tell(loan, ledger.now)) is not None]


def _tell(loan: Loan, now: float) -> LoanUsage | None:
    loan.accrue(now)
    if not loan.blocks or loan.block_seconds == loan.told:
        return None
    loan.told = loan.block_seconds
    return loan.usage()


def _slices(items: Sequence[T], at_once: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), at_once):
        yield items[first : first + at_once]

"""All loans in total, added up from what the journal reports."""

from tenantzone_runtime.zones.audit.events import LoanUsage


class LentInAll:
    """Adds up as a bill does: the last value of each count, where a count has a lender, a borrower and a start."""

    def __init__(self):
        self._counts = {}

    def take(self, events):
        for event in events:
            if isinstance(event, LoanUsage):
                key = event.lender, event.borrower, event.counting_since
                assert event.block_seconds >= self._counts.get(key, 0.0), "a count only grows"
                self._counts[key] = event.block_seconds

    def of(self, lender, borrower):
        return sum(count for key, count in self._counts.items() if key[:2] == (lender, borrower))

    def block_seconds(self):
        return sum(self._counts.values())

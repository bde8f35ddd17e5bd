"""The usage of zones and loans for the journal: only what has changed since it was last reported, in slices.

An unused zone has nothing to report. Between two slices anything may happen: a zone or a loan that ends before its turn
reports its total when it ends, and a new one is reported in the next round.

A slice is taken under the engine's lock, so it only reads the numbers. The events are made of them lazily.
"""

from collections.abc import Iterator
from typing import Final

from tenantzone_runtime.zones.audit import Event, Usage
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.loan import loan_usage
from tenantzone_runtime.zones.loans import LoanBook
from tenantzone_runtime.zones.parts import slices
from tenantzone_runtime.zones.zone import Used, Zone

MAX_AT_ONCE: Final = 250
"""The most zones or loans that are considered without a pause: less than a millisecond's work."""


def report_usage(ledger: Ledger, loans: LoanBook, at_once: int) -> Iterator[Iterator[Event]]:
    """Yields the events of usage up to now; each item covers ``at_once`` zones or loans."""
    for zones in slices(list(ledger.zones.values()), at_once):
        new = [zone for zone in zones if ledger.update_reported(zone)]
        yield map(zone_usage, new, [zone.usage_reported for zone in new])
    for some in slices(list(loans), at_once):
        grown = [loan for loan in some if loan.blocks and loan.update_reported(ledger.now)]
        yield map(loan_usage, grown, [loan.reported for loan in grown])


def zone_usage(zone: Zone, used: Used) -> Usage:
    """Returns the journal's event of a zone's usage."""
    return Usage(zone.spec.tenant, zone.born, *used)

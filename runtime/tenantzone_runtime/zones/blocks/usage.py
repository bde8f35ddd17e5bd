"""The usage of zones and loans for the journal, in slices. Those without usage since the last report are skipped.

Zones and loans may change between two slices. A zone or loan that ends before its slice reports its total when it ends.
A new zone or loan is reported in the next round.

A slice is taken under the engine's lock, so it only reads the numbers. The events are made from them lazily.
"""

from collections.abc import Iterator
from typing import Final

from tenantzone_runtime.zones.audit.events import Event, Usage
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.blocks.loan import loan_usage
from tenantzone_runtime.zones.blocks.loans import LoanBook
from tenantzone_runtime.zones.model.parts import slices
from tenantzone_runtime.zones.model.zone import Used, Zone

MAX_AT_ONCE: Final = 250
"""Maximum number of zones or loans in a slice. Taking a slice takes less than a millisecond."""


def report_usage(ledger: Ledger, loans: LoanBook, at_once: int) -> Iterator[Iterator[Event]]:
    """Generate the usage events up to now. Each item covers ``at_once`` zones or loans."""
    for zones in slices(list(ledger.zones.values()), at_once):
        new = [zone for zone in zones if ledger.update_reported(zone)]
        yield map(zone_usage, new, [zone.usage_reported for zone in new])
    for some in slices(list(loans), at_once):
        grown = [loan for loan in some if loan.blocks and loan.update_reported(ledger.now)]
        yield map(loan_usage, grown, [loan.reported for loan in grown])


def zone_usage(zone: Zone, used: Used) -> Usage:
    """Returns the journal's event of a zone's usage."""
    return Usage(zone.spec.tenant, zone.born, *used)

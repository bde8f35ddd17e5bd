"""The usage of zones and loans, for the journal: only what has changed since it was told last, in slices.

A zone that holds nothing and asks for nothing has nothing to tell. Between two slices anything may happen: a zone or a
loan that is over before its turn has told what it came to when it ended, and one that is new has its turn next time.

Whoever takes a slice holds the engine's lock, so there the numbers are read and nothing else is made. The events are
made of them when they are asked for.
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
"""Zones, or loans, that are looked at without a pause: less than a millisecond's work."""


def tell_usage(ledger: Ledger, loans: LoanBook, at_once: int) -> Iterator[Iterator[Event]]:
    """The events of what has been used up to now, ``at_once`` zones or loans looked at for each item."""
    for zones in slices(list(ledger.zones.values()), at_once):
        new = [zone for zone in zones if ledger.tell_usage(zone)]
        yield map(zone_usage, new, [zone.usage_told for zone in new])
    for some in slices(list(loans), at_once):
        grown = [loan for loan in some if loan.blocks and loan.tell(ledger.now)]
        yield map(loan_usage, grown, [loan.told for loan in grown])


def zone_usage(zone: Zone, used: Used) -> Usage:
    """The journal's event of what a zone has used."""
    return Usage(zone.spec.tenant, zone.born, *used)

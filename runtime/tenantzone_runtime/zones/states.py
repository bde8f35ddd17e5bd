"""Active, Idle, Evicted: what time and requests do to a zone.

Active: a request waits or runs. Idle: none does; after its idle window the zone is *quiet* and lends. Evicted: the
blocks of an idle zone are all gone; its id and its tenant's binding stay, and its next request wakes it at once.
"""

from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.zone import Zone


def request_arrived(ledger: Ledger, zone: Zone, now: float) -> None:
    """A request was bound to the zone."""
    zone.requests += 1
    zone.last_active = now
    zone.state = "Active"
    if zone.quiet:
        zone.quiet = False
        ledger.reckon(zone)


def request_finished(zone: Zone, now: float) -> None:
    """A request of the zone has ended, however it ended."""
    assert zone.requests > 0, f"zone {zone.spec.tenant}: more requests ended than came"
    zone.requests -= 1
    zone.last_active = now
    if zone.requests == 0:
        zone.state = "Idle"


def blocks_evicted(zone: Zone) -> None:
    """Some of the zone's cached blocks were evicted."""
    if zone.state == "Idle" and zone.held == 0:
        zone.state = "Evicted"


def advance(ledger: Ledger, zone: Zone, now: float) -> list[int]:
    """Let time pass. Returns the blocks evicted because the zone's ``evict_after`` has passed."""
    if zone.requests > 0:
        return []
    silent = now - zone.last_active
    quiet = silent >= zone.spec.idle.after
    if quiet != zone.quiet:
        zone.quiet = quiet
        ledger.reckon(zone)
    evict_after = zone.spec.idle.evict_after
    if evict_after is None or silent < evict_after or zone.state == "Evicted":
        return []
    blocks = ledger.evict(zone, len(zone.cached), "idle")
    if zone.held == 0:
        zone.state = "Evicted"
    return blocks

"""Purging: evicts everything that a zone has cached, and records the amount.

A purge begins when a config takes effect with an id that the zone has not carried out, and is complete when that config
is applied completely. The zone's cached blocks are evicted. Blocks in use by its requests are withdrawn by the engine,
which alone knows how a block is found. Requests that began before the purge cache nothing at all: their blocks were
computed before, or depend on such blocks.
"""

from collections.abc import Iterator

from tenantzone_runtime.zones.audit import Purged
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.zone import Purge, Zone


def has_nothing_to_forget(zone: Zone) -> None:
    """Count the purge in a new zone's spec as carried out: the zone has never cached anything."""
    if zone.spec.purge:
        zone.purge = Purge(zone.spec.purge, is_complete=True)


def is_under_way(zone: Zone) -> bool:
    """Whether a purge of the zone has begun and is not complete."""
    return zone.purge is not None and not zone.purge.is_complete


def purge(ledger: Ledger, zone: Zone, at_once: int) -> Iterator[tuple[Zone, list[int]]]:
    """Evict all that a zone keeps cached if its spec names a purge that was not carried out.

    Args:
        ledger: all zones.
        zone: which one.
        at_once: the most blocks that are evicted between two yields.

    Yields:
        The zone, with its blocks that were evicted; at least once, at the moment when the purge begins.
    """
    if not _is_due(zone):
        return
    _begin(zone)
    # At most the present number: requests that arrive meanwhile may cache as fast as this evicts.
    left = len(zone.cached)
    while True:
        evicted = evict(ledger, zone, min(left, len(zone.cached), at_once))
        left -= len(evicted)
        yield zone, evicted
        if not left or not zone.cached:
            return


def evict(ledger: Ledger, zone: Zone, blocks: int) -> list[int]:
    """Evict ``blocks`` cached blocks of a zone for its purge, and return their ids."""
    assert zone.purge is not None, "a purge has begun"
    zone.purge.evicted += blocks
    return ledger.evict(zone, blocks, "purge")


def evict_left_behind(ledger: Ledger, zone: Zone, block_ids: list[int]) -> None:
    """Evict given cached blocks of a zone for its purge: requests have released them since it began."""
    assert zone.purge is not None, "a purge has begun"
    zone.purge.evicted += len(block_ids)
    ledger.evict_blocks(zone, block_ids, "purge")


def complete(ledger: Ledger, zone: Zone) -> None:
    """Note that nothing from before the purge can be found any more; does nothing if no purge is in progress."""
    if zone.purge is None or zone.purge.is_complete:
        return
    zone.purge.is_complete = True
    if ledger.is_present(zone):
        ledger.trail.note(Purged(zone.spec.tenant, zone.purge.id, zone.purge.evicted, zone.purge.withdrawn))


def _is_due(zone: Zone) -> bool:
    wanted, last = zone.spec.purge, zone.purge
    return bool(wanted) and (last is None or last.id != wanted or not last.is_complete)


def _begin(zone: Zone) -> None:
    """Begin the purge, or continue it after a config that failed partway."""
    if zone.purge is None or zone.purge.id != zone.spec.purge:
        zone.purge = Purge(zone.spec.purge)
        zone.purges += 1

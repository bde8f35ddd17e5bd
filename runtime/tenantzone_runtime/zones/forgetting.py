"""Purging: evicts everything that a zone has cached, and records how much that was.

A purge begins when a config takes effect with an id that the zone has not carried out, and is complete when that
config is in force whole. What the zone keeps cached is evicted. What its requests use is withdrawn by the engine, which
alone knows how a block is found. Whatever a request computes that had begun before the purge is not cached at all: that
is what was computed before, or is made of it.
"""

from collections.abc import Iterator

from tenantzone_runtime.zones.audit import Purged
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.zone import Purge, Zone


def has_nothing_to_forget(zone: Zone) -> None:
    """Count the purge that a new zone is declared with as carried out: nothing was ever cached."""
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
        The zone, with blocks of it that were evicted; once at least, at the moment when the purge begins.
    """
    if not _is_due(zone):
        return
    _begin(zone)
    # No more than there is now: requests that come meanwhile may cache as fast as this goes.
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
    """Evict given cached blocks of a zone for its purge: requests have let them go since it began."""
    assert zone.purge is not None, "a purge has begun"
    zone.purge.evicted += len(block_ids)
    ledger.evict_blocks(zone, block_ids, "purge")


def complete(ledger: Ledger, zone: Zone) -> None:
    """Note that nothing from before the purge can be found any more; harmless if none is under way."""
    if zone.purge is None or zone.purge.is_complete:
        return
    zone.purge.is_complete = True
    if ledger.is_present(zone):
        ledger.trail.note(Purged(zone.spec.tenant, zone.purge.id, zone.purge.evicted, zone.purge.withdrawn))


def _is_due(zone: Zone) -> bool:
    wanted, last = zone.spec.purge, zone.purge
    return bool(wanted) and (last is None or last.id != wanted or not last.is_complete)


def _begin(zone: Zone) -> None:
    """Begin the purge, or go on with it after a config that failed in the midst."""
    if zone.purge is None or zone.purge.id != zone.spec.purge:
        zone.purge = Purge(zone.spec.purge)
        zone.purges += 1

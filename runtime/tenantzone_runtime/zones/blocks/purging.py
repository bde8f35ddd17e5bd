"""Purging: evicts all cached blocks of a zone, and records their number.

A purge begins when a config takes effect whose purge id is new to the zone. It is complete when that config is applied
completely. The zone's cached blocks are evicted. The engine withdraws blocks in use by the zone's requests, because
only the engine knows how blocks are looked up. Requests that began before the purge cache no blocks at all, because
their blocks were computed before the purge, or depend on such blocks.
"""

from collections.abc import Iterator

from tenantzone_runtime.zones.audit.events import Purged
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.model.zone import Purge, Zone


def has_nothing_to_forget(zone: Zone) -> None:
    """Note the purge in a new zone's spec as complete, because the zone has not cached anything yet."""
    if zone.spec.purge:
        zone.purge = Purge(zone.spec.purge, is_complete=True)


def is_under_way(zone: Zone) -> bool:
    """Whether a purge of the zone has begun and is not complete."""
    return zone.purge is not None and not zone.purge.is_complete


def purge(ledger: Ledger, zone: Zone, at_once: int) -> Iterator[tuple[Zone, list[int]]]:
    """Evict all cached blocks of a zone if its spec names a purge that is not complete yet.

    Args:
        ledger: ledger with all zones.
        zone: the zone.
        at_once: maximum number of blocks evicted in one iteration.

    Yields:
        The zone, and the ids of its evicted blocks. If a purge is due, there is at least one item, which marks the
        purge's start. Its list of ids may be empty.
    """
    if not _is_due(zone):
        return
    _begin(zone)
    # Evict at most the current number: requests that arrive meanwhile may cache blocks as fast as they are evicted.
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
    """Evict a zone's cached blocks that were released by requests after the zone's purge began."""
    assert zone.purge is not None, "a purge has begun"
    zone.purge.evicted += len(block_ids)
    ledger.evict_blocks(zone, block_ids, "purge")


def complete(ledger: Ledger, zone: Zone) -> None:
    """Note that a zone's purge is complete; does nothing if no purge is in progress."""
    if zone.purge is None or zone.purge.is_complete:
        return
    zone.purge.is_complete = True
    if ledger.is_present(zone):
        ledger.trail.note(Purged(zone.spec.tenant, zone.purge.id, zone.purge.evicted, zone.purge.withdrawn))


def _is_due(zone: Zone) -> bool:
    wanted, last = zone.spec.purge, zone.purge
    return bool(wanted) and (last is None or last.id != wanted or not last.is_complete)


def _begin(zone: Zone) -> None:
    """Begin the purge, or continue it if an earlier config with the same purge failed partway."""
    if zone.purge is None or zone.purge.id != zone.spec.purge:
        zone.purge = Purge(zone.spec.purge)
        zone.purges += 1

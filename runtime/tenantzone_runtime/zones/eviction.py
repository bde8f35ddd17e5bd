"""Whose cached blocks go when a zone needs blocks and too few are free.

The order, for a zone that may take what it asks for:

- limit: if it would hold more than its limit, its own least recently used blocks pay the difference;
- S1 (quiet): zones past their idle window, lowest priority first, then least recently active, down to their exclusive
  part;
- S1b (recall), only for a zone within its reservation: surplus above other zones' reservations, lowest priority first;
- S2 (own): its own blocks, least recently used first.
"""

from collections.abc import Iterator

from tenantzone_contract.report import EvictionReason
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.zone import Zone


def make_room(ledger: Ledger, zone: Zone | None, count: int, free: int) -> list[tuple[Zone, list[int]]]:
    """Evict so that ``count`` blocks are free for the zone. It may take them: the caller has asked the ledger.

    Args:
        ledger: who owns what.
        zone: who needs the blocks; None for a request from before any zone was declared.
        count: new blocks needed; hits on the zone's own cache are in use already and not among them.
        free: blocks that are free now.

    Returns:
        The evicted block ids with their former owners, in order.
    """
    evicted: list[tuple[Zone, list[int]]] = []
    if zone is not None and (over := zone.held + count - zone.spec.quota.limit) > 0:
        blocks = ledger.evict(zone, min(over, len(zone.cached)), "limit")
        evicted.append((zone, blocks))
        free += len(blocks)
    short = count - free
    if short <= 0:
        return evicted
    for victim, most, reason in _victims(ledger, zone, count):
        amount = min(short, most)
        if amount > 0:
            evicted.append((victim, ledger.evict(victim, amount, reason)))
            short -= amount
        if short == 0:
            break
    return evicted


def trim_to_limit(ledger: Ledger, zone: Zone) -> list[int]:
    """Evict what a zone keeps cached beyond its limit, after the limit fell or blocks came back. Returns their ids."""
    over = min(zone.held - zone.spec.quota.limit, len(zone.cached))
    return ledger.evict(zone, over, "limit") if over > 0 else []


def _victims(ledger: Ledger, zone: Zone | None, count: int) -> Iterator[tuple[Zone, int, EvictionReason]]:
    """Zones to evict from, with the most that may go from each, in order."""
    others = [other for other in ledger.zones.values() if other is not zone and other.cached]
    quiet = [other for other in others if other.evictable > 0]
    for other in sorted(quiet, key=lambda victim: (victim.spec.priority, victim.last_active)):
        yield other, other.evictable, "quiet"
    if zone is None:
        return
    if zone.in_use + count <= zone.spec.quota.reserved:
        surplus = [other for other in others if other.held > other.spec.quota.reserved]
        for other in sorted(surplus, key=lambda victim: (victim.spec.priority, victim.last_active)):
            yield other, min(len(other.cached), other.held - other.spec.quota.reserved), "recall"
    yield zone, len(zone.cached), "own"

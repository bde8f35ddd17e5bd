"""Which reservations an engine holds that is too small for all of them: one answer, for engine and operator."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenantzone_contract.config import ZoneConfig
from tenantzone_contract.share import ceil_blocks, floor_blocks


@dataclass(frozen=True, slots=True)
class Grant:
    """What one engine grants a zone, in blocks."""

    reserved: int
    """Blocks: all that the zone asks for, or none."""
    limit: int
    lacking: int
    """Blocks that it asks for and that do not fit."""


def limit_blocks(limit: int | str | None, capacity: int) -> int:
    """A zone's limit on an engine of ``capacity`` blocks; None stands for all of them."""
    return capacity if limit is None else min(capacity, ceil_blocks(limit, capacity))


def grants(zones: Sequence[ZoneConfig], capacity: int) -> list[Grant]:
    """What an engine of ``capacity`` blocks grants each of these zones, in their order.

    Those that stand first come first: in the operator's configs they are the oldest. One that does not fit beside those
    before it, or whose own limit is less here, reserves nothing: half of a promise is none.
    """
    granted = []
    room = capacity
    for zone in zones:
        wanted, limit = floor_blocks(zone.reserved, capacity), limit_blocks(zone.limit, capacity)
        reserved = wanted if wanted <= min(limit, room) else 0
        granted.append(Grant(reserved, limit, wanted - reserved))
        room -= reserved
    return granted


@dataclass(frozen=True, slots=True)
class SeatGrant:
    """What one engine grants a zone of the requests that it can run at once."""

    reserved: int | None
    """All that the zone asks for, or none; None: it asks for the share that comes with its blocks."""
    limit: int | None
    lacking: int
    """Seats that it asks for and of which there are too few."""


def seat_grants(zones: Sequence[ZoneConfig], seats: int) -> list[SeatGrant]:
    """What an engine with so many seats grants each of these zones, in their order, by the rule of :func:`grants`.

    What zones ask for by name goes before the shares that come with blocks: these are of what is left.
    """
    granted = []
    room = seats
    for zone in zones:
        limit = None if zone.seats.limit is None else min(seats, ceil_blocks(zone.seats.limit, seats))
        if zone.seats.reserved is None:
            granted.append(SeatGrant(None, limit, 0))
            continue
        wanted = floor_blocks(zone.seats.reserved, seats)
        reserved = wanted if wanted <= min(room, seats if limit is None else limit) else 0
        granted.append(SeatGrant(reserved, limit, wanted - reserved))
        room -= reserved
    return granted

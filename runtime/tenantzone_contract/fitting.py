"""Decides which reservations an engine grants that is too small for all: one rule for engine and operator."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenantzone_contract.config import ZoneConfig
from tenantzone_contract.share import ceil_blocks, floor_blocks


@dataclass(frozen=True, slots=True)
class Grant:
    """The amounts that one engine grants a zone, in blocks."""

    reserved: int
    """All blocks that the zone asks for, or 0."""
    limit: int
    lacking: int
    """The blocks that the zone asks for and that do not fit."""


def limit_blocks(limit: int | str | None, capacity: int) -> int:
    """Returns a zone's limit on an engine of ``capacity`` blocks; None stands for all of them."""
    return capacity if limit is None else min(capacity, ceil_blocks(limit, capacity))


def grants(zones: Sequence[ZoneConfig], capacity: int) -> list[Grant]:
    """Returns what an engine of ``capacity`` blocks grants each zone, in their order.

    Earlier zones take precedence: in the operator's configs they are the oldest. A zone whose reservation does not fit
    next to those before it, or exceeds its own limit here, reserves nothing: half a reservation is no guarantee.
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
    """The seats that one engine grants a zone; a seat is a request that can run at once."""

    reserved: int | None
    """All seats that the zone asks for, or 0; None if it gets the share that comes with its blocks."""
    limit: int | None
    lacking: int
    """The seats that the zone asks for and that the engine lacks."""


def seat_grants(zones: Sequence[ZoneConfig], seats: int) -> list[SeatGrant]:
    """Returns what an engine with ``seats`` seats grants each zone, in their order, as in :func:`grants`.

    Explicit seat reservations take precedence over the shares that come with blocks, which divide what is left.
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

"""Decides which reservations an engine grants if not all of them fit. Engine and operator use the same rule."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.share import ceil_blocks, floor_blocks


@dataclass(frozen=True, slots=True)
class Grant:
    """The amounts that one engine grants a zone, in blocks."""

    reserved: int
    """Number of blocks reserved for the zone: either the whole reservation of its config, or 0."""
    limit: int
    lacking: int
    """Number of blocks that the zone's config reserves and the engine does not grant."""


def limit_blocks(limit: int | str | None, capacity: int) -> int:
    """Returns a zone's limit in blocks on an engine of ``capacity`` blocks; a limit of None means all blocks."""
    return capacity if limit is None else min(capacity, ceil_blocks(limit, capacity))


def grants(zones: Sequence[ZoneConfig], capacity: int) -> list[Grant]:
    """Returns the blocks that an engine of ``capacity`` blocks grants each zone, in the order of ``zones``.

    Earlier zones take precedence. The operator sorts zones by age, the oldest first. If a zone's reservation does not
    fit in addition to earlier zones' reservations, or exceeds the zone's limit on this engine, the zone gets no
    reservation at all, because half a reservation would guarantee nothing.
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
    """The seats that one engine grants a zone; each seat allows one running request."""

    reserved: int | None
    """Number of reserved seats: either the whole reservation of the zone's config, or 0.

    None if the config does not set ``seats.reserved``. The zone then gets seats in proportion to its reserved blocks.
    """
    limit: int | None
    lacking: int
    """Number of seats that the zone's config reserves and the engine does not grant."""


def seat_grants(zones: Sequence[ZoneConfig], seats: int) -> list[SeatGrant]:
    """Returns the seats that an engine with ``seats`` seats grants each zone, by the same rules as :func:`grants`.

    Seats that configs reserve take precedence. Zones whose configs do not set ``seats.reserved`` divide the others.
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

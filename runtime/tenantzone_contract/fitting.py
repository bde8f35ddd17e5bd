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

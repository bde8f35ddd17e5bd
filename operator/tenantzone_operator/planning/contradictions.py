"""Pure functions that find contradictions between a number and a percentage in the spec of one zone.

The API server refuses amounts that contradict each other in engines of any size. A number and a percentage can only be
compared for an engine of a known size.
"""

from collections.abc import Callable

from tenantzone_contract.quantity import shown_bytes
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.share import ceil_blocks, floor_blocks
from tenantzone_contract.zone_config.tiers import PoolTiers

Share = int | str


def contradiction(entry: ZoneConfig, blocks: int | None, seats: int | None, tiers: PoolTiers) -> str:
    """Returns a text about the first contradiction between amounts of a zone, with a fix; empty if there is none.

    Args:
        entry: the zone's config entry.
        blocks: the engine size that the plan assumes, in blocks; None if unknown.
        seats: the maximum number of requests that these engines run at once; None if unknown.
        tiers: the KV-cache tiers of each engine, as the pool declares them.
    """
    found = ""
    if blocks is not None:
        found = limit_below_reserved(entry, blocks) or _too_lendable(entry, blocks)
    if not found and seats is not None:
        found = seat_limit_below_reserved(entry, seats)
    for share in entry.tiers:
        size = tiers.bytes_of(share.tier)
        if not found and size:
            found = _limit_below_reserved(f"tiers[{share.tier}].", share.reserved, share.limit, size, shown_bytes)
    return found


def depends_on_size(entry: ZoneConfig) -> bool:
    """Returns whether the zone may fit, or have contradictory amounts, in engines of one size but not of another."""
    lendable = entry.lending.lendable if isinstance(entry.lending.lendable, int) else None
    compared = ((entry.reserved, entry.limit), (entry.seats.reserved, entry.seats.limit), (entry.reserved, lendable))
    is_mixed = any(None not in pair and type(pair[0]) is not type(pair[1]) for pair in compared)
    return is_mixed or (isinstance(entry.reserved, int) and entry.reserved > 0)


def limit_below_reserved(entry: ZoneConfig, blocks: int) -> str:
    """Returns how a zone's limit contradicts its reservation in an engine of this size; empty if it does not."""
    return _limit_below_reserved("", entry.reserved, entry.limit, blocks, _blocks)


def seat_limit_below_reserved(entry: ZoneConfig, seats: int) -> str:
    """Returns how a zone's seat limit contradicts its reserved seats in an engine with ``seats`` seats; else empty."""
    return _limit_below_reserved("seats.", entry.seats.reserved, entry.seats.limit, seats, _seats)


def _limit_below_reserved(
    path: str, reserved: Share | None, limit: Share | None, size: int, shown: Callable[[int], str]
) -> str:
    # Only compare a number with a percentage, because the API server has already compared amounts of the same kind.
    if reserved is None or limit is None or type(reserved) is type(limit):
        return ""
    at_least, at_most = floor_blocks(reserved, size), ceil_blocks(limit, size)
    if at_least <= at_most:
        return ""
    return (
        f"{path}limit ({_amount(limit, at_most, shown)}) must not be below {path}reserved "
        f"({_amount(reserved, at_least, shown)}), as it is in an engine with {shown(size)}; "
        f"raise {path}limit or lower {path}reserved"
    )


def _too_lendable(entry: ZoneConfig, blocks: int) -> str:
    lendable, reserved = entry.lending.lendable, floor_blocks(entry.reserved, blocks)
    if isinstance(lendable, str) or isinstance(entry.reserved, int) or lendable <= reserved:
        return ""
    return (
        f"lending.lendable ({_blocks(lendable)}) must not exceed reserved "
        f"({_amount(entry.reserved, reserved, _blocks)}), as it does in an engine with {_blocks(blocks)}; "
        f"lower it, or give a percentage of the reservation"
    )


def _amount(share: Share, number: int, shown: Callable[[int], str]) -> str:
    return f"{share}, which is {shown(number)}" if isinstance(share, str) else shown(number)


def _blocks(number: int) -> str:
    return f"{number} blocks"


def _seats(number: int) -> str:
    return f"{number} requests at once"

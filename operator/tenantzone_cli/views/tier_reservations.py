"""Shows which zones hold a pool's reservations in the tiers that have no room for another zone's reservation."""

from collections.abc import Iterator, Sequence

from tenantzone_cli.resources import Pool, Zone
from tenantzone_cli.table import render
from tenantzone_contract.quantity import parse_bytes, shown_bytes
from tenantzone_contract.zone_config.share import floor_blocks
from tenantzone_contract.zone_config.tiers import TIER_NAMES


def tier_reservations(zone: Zone, pool: Pool, others: Sequence[Zone]) -> Iterator[str]:
    """Iterates over lines about each tier into which the zone's reservation does not fit.

    Args:
        zone: a zone that is not accepted.
        pool: the zone's pool.
        others: the accepted zones of the pool.
    """
    for tier in TIER_NAMES:
        size = _size(pool, tier)
        held = {other.name: _bytes(other, tier, size) for other in sorted(others, key=lambda each: each.created or 0.0)}
        left, wanted = size - sum(held.values()), _bytes(zone, tier, size)
        if wanted <= left:
            continue
        yield f"Who holds the reservations of tier {tier} of pool {pool.name}, {shown_bytes(size)} in each engine"
        rows = [(f"  {name}", shown_bytes(reserved)) for name, reserved in held.items() if reserved]
        rows.append(("  not reserved", shown_bytes(max(0, left))))
        rows.append((f"  {zone.name} asks for", shown_bytes(wanted)))
        yield from render(("  ZONE", "BYTES"), rows)


def _size(pool: Pool, tier: str) -> int:
    declared = (pool.spec.get("tiers") or {}).get(tier)
    return 0 if declared is None else parse_bytes(declared["bytes"])


def _bytes(zone: Zone, tier: str, size: int) -> int:
    reserved = next((share.get("reserved", 0) for share in zone.tiers if share["tier"] == tier), 0)
    is_percent = isinstance(reserved, str) and reserved.endswith("%")
    return floor_blocks(reserved if is_percent else parse_bytes(reserved), size)

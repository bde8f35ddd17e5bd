"""Derives the config of zones in a tier from the config of the engine's zones."""

from typing import Final

from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.tiers import TierName, TierShare, limit_chunks, reserved_chunks
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants
from tenantzone_contract.zone_config.zone_terms import Retention, SeatShare

_ANY_NUMBER: Final = 2**53
"""More chunks than any tier has, so that the conversion from bytes does not depend on the tier's size."""


def tier_config(config: RuntimeConfig, tier: TierName, chunk_bytes: int) -> RuntimeConfig:
    """Returns the config of the same zones for a tier, with amounts in chunks.

    Priority, weight, lending, idle times and purges apply to chunks in the same way as to blocks. Amounts of blocks and
    seats apply only to the engine. Chunks need no zeroing, because a store overwrites a chunk before it can be loaded.
    A zone without a share of the tier has no reservation there, but may use chunks that no other zone is promised.

    Args:
        config: config of the engine.
        tier: the tier whose shares are used.
        chunk_bytes: size of the tier's chunks. Reservations are rounded down to whole chunks, and limits up.
    """
    zones = tuple(_zone(zone, tier, chunk_bytes) for zone in config.zones)
    return config.model_copy(update={"zones": zones, "pool": _pool(config.pool)})


def _zone(zone: ZoneConfig, tier: TierName, chunk_bytes: int) -> ZoneConfig:
    share = next((share for share in zone.tiers if share.tier == tier), TierShare(tier=tier))
    # A lendable percentage applies to chunks, too; a number of blocks does not.
    lendable = zone.lending.lendable if isinstance(zone.lending.lendable, str) else "100%"
    return zone.model_copy(
        update={
            "reserved": _in_chunks(share.reserved, chunk_bytes),
            "limit": None if share.limit is None else _limit_in_chunks(share.limit, chunk_bytes),
            "lending": zone.lending.model_copy(update={"lendable": lendable}),
            "retention": _retention(zone, share),
            "eviction_policy": "LRU",
            "scrub": "Never",
            "seats": SeatShare(),
            "tiers": (),
        }
    )


def _in_chunks(reserved: int | str, chunk_bytes: int) -> int | str:
    return reserved if isinstance(reserved, str) else reserved_chunks(reserved, chunk_bytes, _ANY_NUMBER)


def _limit_in_chunks(limit: int | str, chunk_bytes: int) -> int | str:
    return limit if isinstance(limit, str) else limit_chunks(limit, chunk_bytes, _ANY_NUMBER)


def _retention(zone: ZoneConfig, share: TierShare) -> Retention:
    if zone.retention.no_store or zone.offload == "Never":
        return Retention(no_store=True)
    times = [seconds for seconds in (share.ttl_seconds, zone.retention.ttl_seconds) if seconds is not None]
    return Retention(ttl_seconds=min(times, default=None))


def _pool(pool: PoolConfig) -> PoolConfig:
    unknown: UnknownTenants = pool.unknown_tenants
    levels = tuple(level.model_copy(update={"reserved": 0, "limit": None}) for level in unknown.levels)
    template = unknown.template.model_copy(update={"limit": None})
    return pool.model_copy(
        update={"unknown_tenants": unknown.model_copy(update={"levels": levels, "template": template})}
    )

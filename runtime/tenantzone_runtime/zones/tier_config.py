"""From the config of an engine's zones to that of the same zones in a tier below it."""

from collections.abc import Mapping
from typing import Final

from tenantzone_contract.config import PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.tiers import TierShare
from tenantzone_contract.unknown_tenants import UnknownTenants
from tenantzone_contract.zone_terms import Retention, SeatShare

NO_SHARE: Final = TierShare()
"""Of a zone that nothing is said of: it is promised nothing, and may use what others leave."""


def tier_config(config: RuntimeConfig, shares: Mapping[str, TierShare]) -> RuntimeConfig:
    """The config of the same zones in a tier.

    What says how blocks are shared says it of chunks, too: priority, weight, lending, idle times, purges. Amounts of
    blocks mean nothing there, and seats are the engine's. A chunk needs no zeroing: whoever stores overwrites it before
    anybody can load it.

    Args:
        config: of the engine.
        shares: by tenant.
    """
    zones = tuple(_zone(zone, shares.get(zone.tenant, NO_SHARE)) for zone in config.zones)
    return config.model_copy(update={"zones": zones, "pool": _pool(config.pool)})


def _zone(zone: ZoneConfig, share: TierShare) -> ZoneConfig:
    # As a percentage what is lent means the same in chunks; a number of blocks does not.
    lendable = zone.lending.lendable if isinstance(zone.lending.lendable, str) else "100%"
    no_store = zone.retention.no_store
    ttl = None if no_store else share.ttl_seconds or zone.retention.ttl_seconds
    return zone.model_copy(
        update={
            "reserved": share.reserved,
            "limit": share.limit,
            "lending": zone.lending.model_copy(update={"lendable": lendable}),
            "retention": Retention(ttl_seconds=ttl, no_store=no_store),
            "eviction_policy": "LRU",
            "scrub": "Never",
            "seats": SeatShare(),
        }
    )


def _pool(pool: PoolConfig) -> PoolConfig:
    unknown: UnknownTenants = pool.unknown_tenants
    levels = tuple(level.model_copy(update={"reserved": 0, "limit": None}) for level in unknown.levels)
    template = unknown.template.model_copy(update={"limit": None})
    return pool.model_copy(
        update={"unknown_tenants": unknown.model_copy(update={"levels": levels, "template": template})}
    )

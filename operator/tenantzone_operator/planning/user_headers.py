"""Pure functions that refuse zones whose user header is a header that their pool uses for another purpose."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.user_header import taken_by_identity
from tenantzone_contract.zone_config.zone_terms import Fairness
from tenantzone_operator.kube.resources import Zone


def without_taken_headers(zones: Sequence[Zone], pool: PoolConfig) -> Sequence[Zone]:
    """Returns the zones. A zone whose user header the pool uses for identity is marked as invalid."""
    if pool.identity is None:
        return zones
    return [replace(zone, config=None, invalid=why) if (why := _why_taken(zone, pool)) else zone for zone in zones]


def granted_without_taken_headers(granted: Mapping[str, ZoneConfig], pool: PoolConfig) -> Mapping[str, ZoneConfig]:
    """Returns the grants without those user headers that the pool now uses for identity.

    Such headers do not distinguish users.
    """
    if pool.identity is None:
        return granted
    return {
        name: entry.model_copy(update={"fairness": Fairness()}) if _taken_by(entry, pool) else entry
        for name, entry in granted.items()
    }


def _taken_by(entry: ZoneConfig, pool: PoolConfig) -> str:
    header = entry.fairness.header
    return "" if header is None else taken_by_identity(header, pool.identity)


def _why_taken(zone: Zone, pool: PoolConfig) -> str:
    field = "" if zone.config is None else _taken_by(zone.config, pool)
    if zone.config is None or not field:
        return ""
    return (
        f"fairness.header ('{zone.config.fairness.header}') is the header of {field} in ZonePool {pool.name}, "
        "which does not distinguish users; choose another header"
    )

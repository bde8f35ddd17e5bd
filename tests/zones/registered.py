"""Pools that register unknown tenants, and what these zones get."""

from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle


def anybody(*levels, limit=None, priority=0, **idle):
    """A pool that registers unknown tenants."""
    times = {name if name == "release" else f"{name}_seconds": value for name, value in idle.items()}
    template = UnknownTenantTemplate(limit=limit, priority=priority, idle=Idle(**times))
    return {"unknown_tenants": UnknownTenants(mode="AutoRegister", template=template, levels=levels)}


def level(name, *, tenants=None, **terms):
    return TenantLevel(name=name, tenants=tenants or [f"{name}-*"], **terms)


GOLD = level("gold", reserved=30, limit=60, weight=3, priority=5)
SMALL = level("small", reserved=10)


def arrive(core, tenant, now=None):
    return core.tenancy.zone_for(tenant, core.now if now is None else now)


def reserved(core):
    """The blocks that each registered zone has reserved, and those that it awaits."""
    zones = core.ledger.zones.values()
    return {
        zone.spec.tenant: (zone.spec.quota.reserved, zone.spec.awaited) for zone in zones if zone.spec.auto_registered
    }

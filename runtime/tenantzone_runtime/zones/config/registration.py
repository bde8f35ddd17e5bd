"""Registers zones for undeclared tenants, and decides which of the zones get the reservation of their level.

A level's reservation is granted either completely or not at all, so that all reservations together never exceed the
engine. Declared zones have precedence: if a config needs the room, registered zones lose their reservations. Among
registered zones, zones that have a reservation keep it, and otherwise older zones come first. A zone that does not get
a reservation awaits it until a config or the removal of another zone leaves room.
"""

from collections.abc import Iterable, Iterator

from tenantzone_contract.zone_config.fitting import limit_blocks
from tenantzone_contract.zone_config.share import floor_blocks
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants
from tenantzone_runtime.zones.blocks.eviction import Evictions
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.config.configure import change_spec
from tenantzone_runtime.zones.model.quota import Quota
from tenantzone_runtime.zones.model.zone import Zone, ZoneSpec


def spec_for(unknown: UnknownTenants, tenant: str, capacity: int, room: int) -> ZoneSpec:
    """Returns the spec of a zone for an undeclared tenant, from the tenant's level or, without a level, the template.

    Args:
        unknown: the config's terms for undeclared tenants.
        tenant: name of the tenant.
        capacity: number of blocks of the engine. Percentages are rounded as for declared zones.
        room: number of blocks that no other zone has reserved. If the level reserves more, the zone reserves nothing.
    """
    level = unknown.level_of(tenant)
    terms = level or unknown.template
    limit = limit_blocks(terms.limit, capacity)
    # The reservation exceeds the limit on some engines if one of the two is a number and the other a percentage.
    wanted = 0 if level is None else min(limit, floor_blocks(level.reserved, capacity))
    reserved = wanted if wanted <= room else 0
    return ZoneSpec(
        tenant=tenant,
        name=tenant,
        generation=0,
        priority=terms.priority,
        quota=Quota(reserved=reserved, limit=limit, lendable=reserved),
        idle=unknown.template.idle,
        weight=1 if level is None else level.weight,
        auto_registered=True,
        level="" if level is None else level.name,
        awaited=wanted - reserved,
    )


def registered_specs(
    zones: Iterable[Zone], declared: Iterable[ZoneSpec], unknown: UnknownTenants, capacity: int
) -> list[ZoneSpec]:
    """Returns the specs that a new config gives to registered zones that the config does not declare.

    Args:
        zones: all zones, in the order of creation.
        declared: specs of the zones that the config declares, which may include registered zones.
        unknown: the config's terms for undeclared tenants.
        capacity: number of blocks of the engine.
    """
    room = capacity
    names = set()
    for spec in declared:
        room -= spec.quota.reserved
        names.add(spec.tenant)
    registered = [zone for zone in zones if zone.spec.auto_registered and zone.spec.tenant not in names]
    by_turn = sorted(registered, key=lambda zone: zone.spec.quota.reserved == 0)
    return list(_specs_for(by_turn, unknown, capacity, room))


def give_awaited(ledger: Ledger, unknown: UnknownTenants, room: int, capacity: int) -> Evictions:
    """Grant zones the reservations that they await, as far as these fit now, the oldest zone first.

    Args:
        ledger: ledger with the zones.
        unknown: the config's terms for undeclared tenants.
        room: number of blocks that no zone has reserved.
        capacity: number of blocks of the engine.

    Returns:
        The evicted blocks.
    """
    # Declared zones are left out, because they get awaited reservations only by a larger engine or another config.
    waiting = [zone for zone in ledger.zones.values() if zone.spec.awaited and zone.spec.auto_registered]
    specs = _specs_for(waiting, unknown, capacity, room)
    return [(zone, change_spec(ledger, zone, spec)) for zone, spec in zip(waiting, specs, strict=True)]


def _specs_for(zones: Iterable[Zone], unknown: UnknownTenants, capacity: int, room: int) -> Iterator[ZoneSpec]:
    """Generate the zones' specs in order. Each spec may reserve the room that the specs before it have left."""
    for zone in zones:
        spec = spec_for(unknown, zone.spec.tenant, capacity, room)
        room -= spec.quota.reserved
        yield spec

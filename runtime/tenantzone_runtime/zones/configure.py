"""From a runtime config to zones: percentages become blocks, zones come, change and leave.

Nothing that runs is killed. A zone that left keeps its requests until they finish; its cached blocks go at once.
"""

from dataclasses import replace

from tenantzone_contract.config import ConfigError, RuntimeConfig, ZoneConfig
from tenantzone_contract.share import ceil_blocks, floor_blocks
from tenantzone_runtime.zones.eviction import trim_to_limit
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.zone import IdleTimes, Zone, ZoneSpec


def zone_specs(config: RuntimeConfig, capacity: int) -> list[ZoneSpec]:
    """What the config means on an engine of ``capacity`` blocks.

    A reservation's percentage is rounded down and a limit's up.

    Raises:
        ConfigError: a zone that can't be held here, or reservations that add up to more than there is.
    """
    specs = [_spec(zone, capacity) for zone in config.zones]
    promised = sum(spec.quota.reserved for spec in specs)
    if promised > capacity:
        raise ConfigError(f"zones: reservations add up to {promised} blocks, this engine has {capacity}")
    return specs


def _spec(zone: ZoneConfig, capacity: int) -> ZoneSpec:
    reserved = floor_blocks(zone.reserved, capacity)
    limit = capacity if zone.limit is None else min(capacity, ceil_blocks(zone.limit, capacity))
    if reserved > limit:
        raise ConfigError(
            f"zone {zone.name}: reserved {zone.reserved} is {reserved} of this engine's {capacity} blocks and exceeds "
            f"its limit {zone.limit if zone.limit is not None else 'of the whole pool'} ({limit} blocks)"
        )
    lendable = min(reserved, floor_blocks(zone.lending.lendable, reserved))
    return ZoneSpec(
        tenant=zone.tenant,
        name=zone.name,
        generation=zone.generation,
        priority=zone.priority,
        quota=Quota(reserved=reserved, limit=limit, lendable=lendable),
        idle=IdleTimes(after=zone.idle.after_seconds, evict_after=zone.idle.evict_after_seconds),
    )


def apply(ledger: Ledger, specs: list[ZoneSpec], now: float) -> list[tuple[Zone, list[int]]]:
    """Make the ledger's zones those of the config, between two steps.

    Returns:
        Blocks that were evicted (limits that fell below what is held, zones that left), with their former owners.
    """
    evicted: list[tuple[Zone, list[int]]] = []
    declared = {spec.tenant for spec in specs}
    for zone in [zone for tenant, zone in ledger.zones.items() if tenant not in declared]:
        zone.leaving = True
        # Promised nothing any more; what runs may still finish within the old limit.
        zone.spec = replace(zone.spec, quota=Quota(reserved=0, limit=zone.spec.quota.limit, lendable=0))
        ledger.reckon(zone)
        evicted.append((zone, ledger.evict(zone, len(zone.cached), "removed")))
        discard_if_gone(ledger, zone)
    for spec in specs:
        known = ledger.zones.get(spec.tenant)
        if known is None:
            ledger.add(Zone(spec=spec, last_active=now))
            continue
        known.spec = spec
        known.leaving = False
        ledger.reckon(known)
        evicted.append((known, trim_to_limit(ledger, known)))
    return evicted


def discard_if_gone(ledger: Ledger, zone: Zone) -> None:
    """A zone that left the config is forgotten with its last request and block. Harmless when it is already."""
    is_known = ledger.zones.get(zone.spec.tenant) is zone
    if is_known and zone.leaving and zone.held == 0 and zone.requests == 0:
        ledger.discard(zone)

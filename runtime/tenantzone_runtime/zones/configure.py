"""From a runtime config to zones: percentages become blocks, zones come, change and leave.

Nothing that runs is killed. A zone that left keeps its requests until they finish; its cached blocks go at once.
"""

from dataclasses import replace

from tenantzone_contract.config import ConfigError, RuntimeConfig, UnknownTenantTemplate, ZoneConfig
from tenantzone_contract.share import ceil_blocks, floor_blocks
from tenantzone_runtime.zones.audit import Change, Lifecycle
from tenantzone_runtime.zones.eviction import Evictions, trim_to_limit
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.usage import zone_usage
from tenantzone_runtime.zones.zone import IdleTimes, LoanTerms, Zone, ZoneSpec, new_zone


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
        weight=zone.weight,
        loans=LoanTerms(
            to_any_priority=zone.lending.borrowers == "AnyPriority",
            most_seconds=zone.lending.max_loan_seconds,
            grace_seconds=zone.lending.grace_seconds,
        ),
        eviction_policy=zone.eviction_policy,
        scrub=zone.scrub == "OnTransfer",
    )


def unknown_tenant_spec(template: UnknownTenantTemplate, tenant: str, capacity: int) -> ZoneSpec:
    """A zone for a tenant that the config does not name: it is promised nothing."""
    limit = capacity if template.limit is None else min(capacity, ceil_blocks(template.limit, capacity))
    idle = template.idle
    return ZoneSpec(
        tenant=tenant,
        name=tenant,
        generation=0,
        priority=template.priority,
        quota=Quota(reserved=0, limit=limit, lendable=0),
        idle=IdleTimes(idle.after_seconds, idle.evict_after_seconds, idle.forget_after_seconds),
        auto_registered=True,
    )


def add_zone(ledger: Ledger, spec: ZoneSpec) -> Zone:
    """A new zone, empty and idle."""
    zone = new_zone(spec, ledger.now, ledger.links)
    ledger.add(zone)
    _note(ledger, zone, "registered" if spec.auto_registered else "declared")
    return zone


def apply(ledger: Ledger, specs: list[ZoneSpec], template: UnknownTenantTemplate | None, capacity: int) -> Evictions:
    """Make the ledger's zones those of the config, between two steps.

    Args:
        ledger: whose zones.
        specs: what the config declares.
        template: of zones for other tenants; None: there are none.
        capacity: blocks of the engine.

    Returns:
        Blocks that were evicted: limits that fell below what is held, zones that left.
    """
    evicted: Evictions = []
    declared = {spec.tenant for spec in specs}
    # First those that leave, so that nothing is promised twice.
    for zone in [zone for tenant, zone in ledger.zones.items() if tenant not in declared]:
        if zone.spec.auto_registered and template is not None:
            evicted.append((zone, respec(ledger, zone, unknown_tenant_spec(template, zone.spec.tenant, capacity))))
        else:
            evicted.append((zone, _dismiss(ledger, zone)))
    for spec in specs:
        known = ledger.zones.get(spec.tenant)
        if known is None:
            add_zone(ledger, spec)
        else:
            evicted.append((known, respec(ledger, known, spec)))
    return evicted


def respec(ledger: Ledger, zone: Zone, spec: ZoneSpec) -> list[int]:
    """Give a zone another spec. Returns the blocks that it keeps no more, because its limit fell."""
    if zone.spec != spec or zone.leaving:
        ledger.standings.respec(zone, spec)
        ledger.overflow.place(zone)
        zone.leaving = False
        _note(ledger, zone, "changed")
    return trim_to_limit(ledger, zone)


def _dismiss(ledger: Ledger, zone: Zone) -> list[int]:
    """A zone leaves the config: promised nothing any more; what runs may still finish within the old limit."""
    if not zone.leaving:
        zone.leaving = True
        _note(ledger, zone, "leaving")
        ledger.standings.respec(zone, replace(zone.spec, quota=Quota(0, zone.spec.quota.limit, 0)))
    blocks = ledger.evict(zone, len(zone.cached), "removed")
    discard_if_gone(ledger, zone)
    return blocks


def discard_if_gone(ledger: Ledger, zone: Zone) -> None:
    """A zone that left the config is forgotten with its last request and block. Harmless when it is already."""
    if ledger.is_present(zone) and zone.leaving and zone.held == 0 and zone.requests == 0:
        # Its bill ends here.
        if ledger.tell_usage(zone):
            ledger.trail.note(zone_usage(zone, zone.usage_told))
        ledger.discard(zone)
        ledger.trail.left(zone.spec.tenant, "forgotten" if zone.spec.auto_registered else "removed")


def _note(ledger: Ledger, zone: Zone, change: Change) -> None:
    ledger.trail.note(Lifecycle(zone.spec.tenant, change))

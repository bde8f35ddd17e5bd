"""From a runtime config to zones: percentages become blocks, zones come, change and leave.

Nothing that runs is killed. A zone that left keeps its requests until they finish; its cached blocks go at once.
"""

from collections.abc import Iterator
from dataclasses import replace

from tenantzone_contract.config import ConfigError, Idle, RuntimeConfig, ZoneConfig
from tenantzone_contract.share import ceil_blocks, floor_blocks, percentage
from tenantzone_runtime.zones.audit import Change, Lifecycle
from tenantzone_runtime.zones.eviction import trim_to_limit
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.usage import zone_usage
from tenantzone_runtime.zones.zone import IdleTimes, LoanTerms, ReleaseSteps, Zone, ZoneSpec, new_zone


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
    limit = limit_blocks(zone.limit, capacity)
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
        idle=IdleTimes(zone.idle.after_seconds, zone.idle.evict_after_seconds, release=release_steps(zone.idle)),
        weight=zone.weight,
        lending=LoanTerms(
            borrowers=zone.lending.borrowers,
            max_loan_seconds=zone.lending.max_loan_seconds,
            grace_seconds=zone.lending.grace_seconds,
        ),
        eviction_policy=zone.eviction_policy,
        scrub=zone.scrub == "OnTransfer",
    )


def limit_blocks(limit: int | str | None, capacity: int) -> int:
    """The limit on an engine of ``capacity`` blocks; None is all of them."""
    return capacity if limit is None else min(capacity, ceil_blocks(limit, capacity))


def release_steps(idle: Idle) -> ReleaseSteps | None:
    """In which steps a quiet zone's cached blocks go; None: all at once."""
    release = idle.release
    return None if release is None else ReleaseSteps(percentage(release.share), release.every_seconds)


def add_zone(ledger: Ledger, spec: ZoneSpec) -> Zone:
    """A new zone, empty and idle."""
    zone = new_zone(spec, ledger.now, ledger.links)
    ledger.add(zone)
    _note(ledger, zone, "registered" if spec.auto_registered else "declared")
    return zone


def apply(ledger: Ledger, specs: list[ZoneSpec]) -> Iterator[tuple[Zone, list[int]]]:
    """Make the ledger's zones those of these specs, between two steps.

    Args:
        ledger: whose zones.
        specs: of all zones that there are to be, with reservations that the engine can hold. A zone that has that very
            spec is passed over.

    Yields:
        Each zone that is new, changed or leaving, with its blocks that were evicted: its limit fell below what it
        holds, or it leaves. It is done with the zone then; what is not asked for is not done.
    """
    staying = {spec.tenant for spec in specs}
    # First those that leave, then those that are promised no more than before: so that nothing is promised twice.
    for zone in [zone for tenant, zone in ledger.zones.items() if tenant not in staying]:
        yield zone, _dismiss(ledger, zone)
    changed = [spec for spec in specs if _changes(ledger.zones.get(spec.tenant), spec)]
    for spec in sorted(changed, key=lambda spec: _grows(ledger, spec)):
        known = ledger.zones.get(spec.tenant)
        yield (add_zone(ledger, spec), []) if known is None else (known, respec(ledger, known, spec))


def _changes(known: Zone | None, spec: ZoneSpec) -> bool:
    return known is None or known.spec is not spec or known.leaving


def _grows(ledger: Ledger, spec: ZoneSpec) -> bool:
    """Whether the spec promises its tenant more than it is promised now."""
    known = ledger.zones.get(spec.tenant)
    return known is None or spec.quota.reserved > known.spec.quota.reserved


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
        ledger.standings.respec(zone, replace(zone.spec, quota=Quota(0, zone.spec.quota.limit, 0), awaited=0))
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
        if zone.name_in_journal is not None:
            ledger.trail.left(zone.spec.tenant, "forgotten" if zone.spec.auto_registered else "removed")


def _note(ledger: Ledger, zone: Zone, change: Change) -> None:
    ledger.trail.note(Lifecycle(zone.spec.tenant, change))

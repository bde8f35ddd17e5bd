"""Applies a runtime config: converts percentages to blocks, and adds, changes and removes zones.

No running request is ended. When a zone is removed, its requests run until they finish, but its cached blocks are
evicted at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeVar

from tenantzone_contract.zone_config.config import ConfigError, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.fitting import Grant, SeatGrant, grants, seat_grants
from tenantzone_contract.zone_config.share import floor_blocks
from tenantzone_contract.zone_config.user_header import taken_by_identity
from tenantzone_contract.zone_config.zone_terms import Idle, LatencyTargets, Lending, QueueBounds, Retention
from tenantzone_runtime.zones.audit.events import Change, Lifecycle
from tenantzone_runtime.zones.blocks import purging
from tenantzone_runtime.zones.blocks.eviction import trim_to_limit
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.blocks.usage import zone_usage
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tenantzone_runtime.zones.model.parts import ALL
from tenantzone_runtime.zones.model.quota import Quota
from tenantzone_runtime.zones.model.zone import (
    SeatQuota,
    Zone,
    ZoneSpec,
    new_zone,
)

_Terms = TypeVar("_Terms", Idle, Lending, QueueBounds, LatencyTargets, Retention)

_SHORTEST_LOAN_SECONDS: Final = 0.1
"""Shortest loan that is granted. It is longer than most steps of an engine. A loan for a single step would be useless,
because the result of the step would be lost when the loan ends."""


def zone_specs(config: RuntimeConfig, capacity: int, seats: int) -> list[ZoneSpec]:
    """Returns the specs of a config's zones on an engine with ``capacity`` blocks that runs ``seats`` requests at once.

    Percentages are rounded down for reservations and up for limits. A zone whose reservation does not fit into the
    engine reserves nothing and awaits the reservation.

    Raises:
        ConfigError: a zone has an eviction policy that this engine does not know, or names its users by a header that
            the pool uses to identify tenants.
    """
    for number, zone in enumerate(config.zones):
        if zone.eviction_policy not in EVICTION_POLICIES:
            known = ", ".join(EVICTION_POLICIES)
            raise ConfigError(
                f"zones[{number}].evictionPolicy: this engine supports {known}, not {zone.eviction_policy}"
            )
        header = zone.fairness.header
        if header is not None and (field := taken_by_identity(header, config.pool.identity)):
            raise ConfigError(
                f"zones[{number}].fairness.header ('{header}') is the header of the pool's {field}; use another header"
            )
    granted = zip(config.zones, grants(config.zones, capacity), seat_grants(config.zones, seats), strict=True)
    return [_spec(*of_zone) for of_zone in granted]


def _spec(zone: ZoneConfig, grant: Grant, seats: SeatGrant) -> ZoneSpec:
    lendable = min(grant.reserved, floor_blocks(zone.lending.lendable, grant.reserved))
    if zone.lending.max_loan_seconds is not None:
        longest = zone.lending.max_loan_seconds + zone.lending.grace_seconds
        # During shorter loans, a borrower's request would be admitted, computed for one step and preempted, repeatedly.
        lendable = lendable if longest >= _SHORTEST_LOAN_SECONDS else 0
    return ZoneSpec(
        tenant=zone.tenant,
        name=zone.name,
        generation=zone.generation,
        priority=zone.priority,
        quota=Quota(reserved=grant.reserved, limit=grant.limit, lendable=lendable),
        idle=_shared(zone.idle),
        weight=zone.weight,
        lending=_shared(zone.lending),
        eviction_policy=zone.eviction_policy,
        scrub=zone.scrub == "OnTransfer",
        queue=_shared(zone.queue),
        max_tokens=zone.request_limits.max_tokens,
        tells_users_apart=zone.fairness.header is not None,
        latency=_shared(zone.latency),
        retention=_shared(zone.retention),
        offload=zone.offload,
        seats=SeatQuota(seats.reserved, seats.limit, seats.lacking),
        purge=zone.purge,
        awaited=grant.lacking,
    )


@lru_cache(maxsize=1024)
def _shared(terms: _Terms) -> _Terms:
    """Returns one shared object for equal terms, because most zones have equal terms and identity compares fastest."""
    return terms


def add_zone(ledger: Ledger, spec: ZoneSpec) -> Zone:
    """Add a new zone, empty and idle, to the ledger."""
    zone = new_zone(spec, ledger.now, ledger.links)
    ledger.add(zone)
    purging.has_nothing_to_forget(zone)
    _note(ledger, zone, "registered" if spec.auto_registered else "declared")
    return zone


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between the current zones and the wanted ones."""

    leaving: list[tuple[Zone, ZoneSpec]]
    """Zones to remove, with their current specs."""
    changed: list[ZoneSpec]
    """Specs of new or changed zones. Zones with increased reservations come last."""


def difference(zones: list[Zone], specs: list[ZoneSpec], *, passing_over_same: bool) -> Difference:
    """Returns the changes that make the zones match the specs.

    Args:
        zones: all current zones.
        specs: specs of all wanted zones.
        passing_over_same: whether to skip zones that have their spec already. This requires that the last config was
            applied completely.
    """
    known = {zone.spec.tenant: zone for zone in zones}
    staying = {spec.tenant for spec in specs}

    def changes(spec: ZoneSpec) -> bool:
        zone = known.get(spec.tenant)
        return not passing_over_same or zone is None or zone.leaving or zone.spec != spec

    def grows(spec: ZoneSpec) -> bool:
        zone = known.get(spec.tenant)
        if zone is None or spec.quota.reserved > zone.spec.quota.reserved:
            return True
        return (spec.seats.reserved or 0) > (zone.spec.seats.reserved or 0)

    leaving = [(zone, zone.spec) for zone in zones if zone.spec.tenant not in staying]
    return Difference(leaving, sorted(filter(changes, specs), key=grows))


def apply(ledger: Ledger, changes: Difference, at_once: int) -> Iterator[tuple[Zone, list[int]]]:
    """Make the changes. Removals come first, so that no block is promised twice.

    Args:
        ledger: ledger with the zones.
        changes: the changes, after which all reservations must fit into the engine.
        at_once: maximum number of a zone's blocks that are evicted in one iteration.

    Yields:
        A zone, and the ids of the blocks that the zone lost because it leaves or may keep fewer blocks. Changes are
        made only as far as the caller iterates.
    """
    for zone, spec in changes.leaving:
        # If a request of the zone's tenant arrived between iterations, the zone was registered again, with a new spec.
        if ledger.is_present(zone) and zone.spec is spec:
            yield zone, _dismiss(ledger, zone, at_once)
            while zone.leaving and zone.cached:
                yield zone, ledger.evict(zone, min(len(zone.cached), at_once), "removed")
            while not zone.leaving and (evicted := trim_to_limit(ledger, zone, at_once)):
                yield zone, evicted
    for spec in changes.changed:
        known = ledger.zones.get(spec.tenant)
        if known is not None:
            yield known, change_spec(ledger, known, spec, at_once)
            while evicted := trim_to_limit(ledger, known, at_once):
                yield known, evicted
            yield from purging.purge(ledger, known, at_once)
        elif not spec.auto_registered:
            yield add_zone(ledger, spec), []


def change_spec(ledger: Ledger, zone: Zone, spec: ZoneSpec, at_once: int = ALL) -> list[int]:
    """Replace a zone's spec. Returns the ids of the blocks that were evicted because the zone may no longer keep them.

    At most ``at_once`` blocks are evicted.
    """
    if zone.spec != spec or zone.leaving:
        ledger.change_spec(zone, spec)
        ledger.overflow.place(zone)
        zone.leaving = False
        _note(ledger, zone, "changed")
    return trim_to_limit(ledger, zone, at_once)


def _dismiss(ledger: Ledger, zone: Zone, at_once: int) -> list[int]:
    """Make a zone leave: end its reservations, keep its limit for running requests, and evict its cached blocks.

    At most ``at_once`` blocks are evicted. Returns the ids of the evicted blocks.
    """
    if not zone.leaving:
        zone.leaving = True
        _note(ledger, zone, "leaving")
        promised_nothing = Quota(0, zone.spec.quota.limit, 0)
        seats = SeatQuota(limit=zone.spec.seats.limit)
        ledger.change_spec(zone, replace(zone.spec, quota=promised_nothing, seats=seats, awaited=0))
    blocks = ledger.evict(zone, min(len(zone.cached), at_once), "removed")
    discard_if_gone(ledger, zone)
    return blocks


def discard_if_gone(ledger: Ledger, zone: Zone) -> None:
    """Discard a leaving zone if it has neither requests nor blocks any more; otherwise do nothing."""
    if ledger.is_present(zone) and zone.leaving and zone.held == 0 and zone.requests == 0:
        # The journal gets the zone's final usage only here.
        if ledger.update_reported(zone):
            ledger.trail.note(zone_usage(zone, zone.usage_reported))
        ledger.discard(zone)
        if zone.name_in_journal is not None:
            ledger.trail.left(zone.spec.tenant, "forgotten" if zone.spec.auto_registered else "removed")


def _note(ledger: Ledger, zone: Zone, change: Change) -> None:
    ledger.trail.note(Lifecycle(zone.spec.tenant, change))

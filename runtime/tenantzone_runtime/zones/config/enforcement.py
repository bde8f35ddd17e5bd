"""Enforcement: applies the newest config zone by zone, while the engine makes steps in between.

Zones that leave or shrink are changed before zones that grow, so that zones are never promised more blocks than the
engine has. If a request of a tenant without a zone arrives meanwhile, a zone is registered by the new config's terms,
but reserves nothing until the config is applied.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants
from tenantzone_runtime.zones.audit.events import ConfigApplied
from tenantzone_runtime.zones.blocks import purging
from tenantzone_runtime.zones.blocks.eviction import Evictions
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.blocks.timers import Timers
from tenantzone_runtime.zones.config import configure, registration
from tenantzone_runtime.zones.config.configure import Difference
from tenantzone_runtime.zones.model.parts import ALL
from tenantzone_runtime.zones.model.quota import Quota
from tenantzone_runtime.zones.model.zone import Zone, ZoneSpec


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Background eviction starts when fewer than ``low`` blocks are free, and continues until ``high`` are free."""

    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A config, and the spec of each declared zone on this engine."""

    config: RuntimeConfig
    specs: dict[str, ZoneSpec]
    """The specs of the declared zones, by tenant."""


class Enforcement:
    """Enforces configs on one engine, zone by zone.

    Args:
        ledger: ledger with the zones.
        capacity: number of blocks that requests can use.
        timers: timers of the zones.
    """

    def __init__(self, ledger: Ledger, capacity: int, timers: Timers) -> None:
        self._ledger = ledger
        self._capacity = capacity
        self._timers = timers
        self.config: RuntimeConfig | None = None
        """The newest config, which may not be applied completely yet."""
        self._is_whole = True
        """Whether the newest config is applied completely."""
        self._was_whole = True
        """Whether the previous config was applied completely."""
        self.watermarks = Watermarks()
        self._coming: dict[str, ZoneSpec] = {}
        """Specs of the zones declared by the config that is being applied, by tenant."""
        self._purged: dict[Zone, None] = {}
        """Zones whose purge by the config being applied has begun. :meth:`end` completes these purges."""
        ledger.departures.append(self._forget)

    def plan(self, config: RuntimeConfig) -> Plan:
        """Returns the plan for applying a config on this engine. Nothing is changed yet.

        Raises:
            ConfigError: the config can't be enforced on this engine.
        """
        specs = configure.zone_specs(config, self._capacity, self._ledger.totals.seats)
        return Plan(config, {spec.tenant: spec for spec in specs})

    def begin(self, plan: Plan, now: float) -> None:
        """Begin to apply a plan's config.

        If applying the config fails partway, some zones have new specs and others old specs, until another config is
        applied completely.
        """
        self._ledger.now = now
        self._was_whole, self._is_whole = self._is_whole, False
        self.config = plan.config
        self._coming = plan.specs
        self._purged = {}

    def changes(self, plan: Plan) -> Difference:
        """Returns the changes that a plan requires. Nothing is changed yet, and the engine may make steps meanwhile."""
        zones, registered = list(self._ledger.zones.values()), self._registered
        specs = list(plan.specs.values())
        if registered is not None:
            specs = [*specs, *registration.registered_specs(zones, specs, registered, self._capacity)]
        return configure.difference(zones, specs, passing_over_same=self._was_whole)

    def make(self, changes: Difference, at_once: int = ALL) -> Iterator[tuple[Zone, list[int]]]:
        """Make the changes in parts, between which zones may change in any way.

        Args:
            changes: the changes.
            at_once: maximum number of blocks evicted in one part.

        Yields:
            A zone and the ids of its blocks that were evicted.
        """
        for zone, evicted in configure.apply(self._ledger, changes, at_once):
            if zone.quiet and not zone.leaving:
                # If the new config has a longer ``idle.after``, the zone may no longer be quiet.
                self._timers.set_at(zone, self._ledger.now)
            elif not zone.leaving:
                self._timers.set(zone)
            if purging.is_under_way(zone):
                self._purged[zone] = None
            yield zone, evicted

    def end(self, plan: Plan) -> Evictions:
        """Mark the config as applied completely, complete its purges, and grant awaited reservations.

        Returns:
            The blocks that were evicted because of the granted reservations.
        """
        self._is_whole = True
        self._coming = {}
        for zone in self._purged:
            purging.complete(self._ledger, zone)
        self._purged = {}
        marks = plan.config.pool.watermarks
        self.watermarks = Watermarks(int(marks.low * self._capacity), int(marks.high * self._capacity))
        self._ledger.trail.note(ConfigApplied(plan.config.generation, plan.config.hash, len(plan.specs)))
        return self.give_awaited()

    def register(self, tenant: str) -> Zone | None:
        """Register a zone for a tenant without a zone; returns None if the config refuses unknown tenants.

        If the config that is being applied declares the zone, the zone reserves nothing until the config reaches it.
        """
        spec = self._coming.get(tenant)
        if spec is not None:
            spec = replace(spec, quota=Quota(0, spec.quota.limit, 0))
        elif self._registered is not None:
            spec = registration.spec_for(self._registered, tenant, self._capacity, self._unpromised)
        else:
            return None
        zone = self._ledger.zones.get(tenant)
        if zone is None:
            zone = configure.add_zone(self._ledger, spec)
        else:
            # If the new limit is lower, the excess cached blocks are evicted when the config reaches this zone.
            configure.change_spec(self._ledger, zone, spec, at_once=0)
        self._timers.set(zone)
        return zone

    def give_awaited(self) -> Evictions:
        """Grant registered zones the reservations that they await, as far as these fit now.

        Returns:
            The evicted blocks.
        """
        registered = self._registered
        if registered is None:
            return []
        return registration.give_awaited(self._ledger, registered, self._unpromised, self._capacity)

    def _forget(self, zone: Zone) -> None:
        """Remove the entry of a removed zone, which still exists if a config that purged the zone failed partway."""
        self._purged.pop(zone, None)

    @property
    def _registered(self) -> UnknownTenants | None:
        """The config's terms for undeclared tenants; None if the config refuses their requests."""
        if self.config is None or self.config.pool.unknown_tenants.mode == "Reject":
            return None
        return self.config.pool.unknown_tenants

    @property
    def _unpromised(self) -> int:
        """Number of blocks that no zone has reserved or is about to reserve."""
        return self._capacity - self._ledger.totals.promised if self._is_whole else 0

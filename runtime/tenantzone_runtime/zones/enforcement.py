"""Enforcement: applies the newest config zone by zone, with steps in between.

At each moment the zones are promised no more than the engine has: zones that leave or shrink come before those that
grow. An undeclared tenant that arrives meanwhile is registered by the new config, but reserves nothing yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tenantzone_contract.config import RuntimeConfig
from tenantzone_contract.unknown_tenants import UnknownTenants
from tenantzone_runtime.zones import configure, purging, registration
from tenantzone_runtime.zones.audit import ConfigApplied
from tenantzone_runtime.zones.configure import Difference
from tenantzone_runtime.zones.eviction import Evictions
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.parts import ALL
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.timers import Timers
from tenantzone_runtime.zones.zone import Zone, ZoneSpec


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The number of free blocks under which background eviction starts, and the number up to which it continues."""

    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a config means on this engine: the spec of each zone."""

    config: RuntimeConfig
    specs: dict[str, ZoneSpec]
    """The specs of the declared zones, by tenant."""


class Enforcement:
    """Enforces configs on one engine, zone by zone.

    Args:
        ledger: whose zones.
        capacity: blocks that requests can use.
        timers: of the zones.
    """

    def __init__(self, ledger: Ledger, capacity: int, timers: Timers) -> None:
        self._ledger = ledger
        self._capacity = capacity
        self._timers = timers
        self.config: RuntimeConfig | None = None
        """The newest config; it may not be applied completely yet."""
        self._is_whole = True
        """Whether the newest config is applied completely."""
        self._was_whole = True
        """Whether the previous config was applied completely."""
        self.watermarks = Watermarks()
        self._coming: dict[str, ZoneSpec] = {}
        """By tenant, the declared zones of the config that is being applied."""
        self._purged: dict[Zone, None] = {}
        """Zones whose purge by the config is done in the core."""
        ledger.departures.append(self._forget)

    def plan(self, config: RuntimeConfig) -> Plan:
        """Returns what the config means on this engine, without any change.

        Raises:
            ConfigError: it can't be enforced on this engine.
        """
        specs = configure.zone_specs(config, self._capacity, self._ledger.totals.seats)
        return Plan(config, {spec.tenant: spec for spec in specs})

    def begin(self, plan: Plan, now: float) -> None:
        """Begin to apply a plan's config.

        If that is not completed, some zones follow it and others do not, until a config is applied completely.
        """
        self._ledger.now = now
        self._was_whole, self._is_whole = self._is_whole, False
        self.config = plan.config
        self._coming = plan.specs
        self._purged = {}

    def changes(self, plan: Plan) -> Difference:
        """Returns what a plan changes, without any change, while steps may be made."""
        zones, registered = list(self._ledger.zones.values()), self._registered
        specs = list(plan.specs.values())
        if registered is not None:
            specs = [*specs, *registration.registered_specs(zones, specs, registered, self._capacity)]
        return configure.difference(zones, specs, passing_over_same=self._was_whole)

    def make(self, changes: Difference, at_once: int = ALL) -> Iterator[tuple[Zone, list[int]]]:
        """Make the changes, with pauses in which anything may happen to zones.

        Args:
            changes: what is to change.
            at_once: the most blocks that are evicted without a pause.

        Yields:
            Zones with blocks of theirs that were evicted.
        """
        for zone, evicted in configure.apply(self._ledger, changes, at_once):
            if zone.quiet and not zone.leaving:
                # Its window may have become longer, so that it is not quiet any more.
                self._timers.set_at(zone, self._ledger.now)
            elif not zone.leaving:
                self._timers.set(zone)
            if purging.is_under_way(zone):
                self._purged[zone] = None
            yield zone, evicted

    def end(self, plan: Plan) -> Evictions:
        """Note that all changes are made: the config is applied completely, and its purges are carried out."""
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
        """Register a zone for a tenant that has none; None if its requests are refused.

        A declared zone that is not applied yet reserves nothing until then.
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
            # Cached blocks above a lower limit are evicted when the zone is applied.
            configure.change_spec(self._ledger, zone, spec, at_once=0)
        self._timers.set(zone)
        return zone

    def give_awaited(self) -> Evictions:
        """Give registered zones that await a reservation what fits now.

        Returns:
            Blocks that were evicted.
        """
        registered = self._registered
        if registered is None:
            return []
        return registration.give_awaited(self._ledger, registered, self._unpromised, self._capacity)

    def _forget(self, zone: Zone) -> None:
        """Forget a zone that is gone. A config that purged it but failed leaves its entry behind."""
        self._purged.pop(zone, None)

    @property
    def _registered(self) -> UnknownTenants | None:
        """The config's terms for tenants that it does not declare; None if they are refused."""
        if self.config is None or self.config.pool.unknown_tenants.mode == "Reject":
            return None
        return self.config.pool.unknown_tenants

    @property
    def _unpromised(self) -> int:
        """Blocks that no zone has reserved, or is about to reserve."""
        return self._capacity - self._ledger.totals.promised if self._is_whole else 0

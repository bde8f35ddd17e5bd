"""The tenancy of one engine, all its zones: what an engine's adapter talks to when configs, requests and time come in.

Blocks are taken and let go through the ledger, and room for them is made by ``eviction``; this is for everything else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import get_args

from tenantzone_contract.config import PoolConfig, RuntimeConfig, UnknownTenants
from tenantzone_runtime.zones import configure, registration, states
from tenantzone_runtime.zones.audit import ConfigApplied, Event, RefusalReason
from tenantzone_runtime.zones.eviction import Evictions, evict_to_watermark, relieve
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.loans import LoanBook
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.stalls import Stalls
from tenantzone_runtime.zones.timers import Timers
from tenantzone_runtime.zones.usage import MAX_AT_ONCE, tell_usage
from tenantzone_runtime.zones.zone import EARLY_TENANT, IdleTimes, Zone, ZoneSpec, new_zone


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Free blocks under which background eviction starts, and up to which it goes on."""

    low: int = 0
    high: int = 0


class Tenancy:
    """The zones of one engine.

    Args:
        block_count: block ids run from 0 to ``block_count - 1``.
        capacity: blocks that requests can use; no more than ``block_count``.
        now: the time, in seconds on any clock that does not run backwards.
    """

    def __init__(self, block_count: int, capacity: int, now: float = 0.0) -> None:
        self.ledger = Ledger(block_count, now, capacity)
        self.loans = LoanBook(self.ledger)
        self._capacity = capacity
        self._timers = Timers()
        self._config: RuntimeConfig | None = None
        self._is_whole = True
        """Whether no config has been left half enforced."""
        self._watermarks = Watermarks()
        self._overdue: list[Zone] = []
        self._stalls = Stalls()
        self.refusals: dict[RefusalReason, int] = dict.fromkeys(get_args(RefusalReason), 0)
        """Requests that were refused; never decrease."""

    def apply(self, config: RuntimeConfig, now: float) -> Evictions:
        """Enforce a new config from now on; requests in flight stay.

        Raises:
            ConfigError: it can't be held on this engine; what was enforced before still is.
        """
        return list(self.enforce(config, self.plan(config), now))

    def plan(self, config: RuntimeConfig) -> list[ZoneSpec]:
        """What the config means on this engine. It changes nothing, and steps may be made meanwhile.

        Raises:
            ConfigError: it can't be held on this engine.
        """
        specs = configure.zone_specs(config, self._capacity)
        return [self._as_known(spec) for spec in specs] if self._is_whole else specs

    def _as_known(self, spec: ZoneSpec) -> ZoneSpec:
        # The very object where nothing changes: to compare thousands takes its time, and steps need not wait for it.
        zone = self.ledger.zones.get(spec.tenant)
        return zone.spec if zone is not None and zone.spec == spec else spec

    def enforce(self, config: RuntimeConfig, plan: list[ZoneSpec], now: float) -> Iterator[tuple[Zone, list[int]]]:
        """Enforce what was planned, zone by zone. Once all have been asked for, the config is in force.

        If something fails in between, what was yielded is done and the rest is not, until a config is enforced whole.

        Yields:
            Zones with their blocks that were evicted.
        """
        self.ledger.now = now
        self._is_whole = False
        for zone, evicted in configure.apply(self.ledger, [*plan, *self._registered_specs(config, plan)]):
            if zone.quiet and not zone.leaving:
                # Its window may have become longer, and it is quiet no more.
                self._timers.set_at(zone, now)
            elif not zone.leaving:
                self._timers.set(zone)
            yield zone, evicted
        marks = config.pool.watermarks
        self._watermarks = Watermarks(int(marks.low * self._capacity), int(marks.high * self._capacity))
        self._config = config
        self._is_whole = True
        self.ledger.trail.note(ConfigApplied(config.generation, config.hash, len(plan)))

    def _registered_specs(self, config: RuntimeConfig, plan: list[ZoneSpec]) -> list[ZoneSpec]:
        unknown = _registered_tenants(config)
        return [] if unknown is None else registration.registered_specs(self.ledger, plan, unknown, self._capacity)

    @property
    def pool(self) -> PoolConfig | None:
        """What the config in force says of the pool; None: none is."""
        return None if self._config is None else self._config.pool

    @property
    def is_open_to_anybody(self) -> bool:
        """Whether requests need no zone, because there never was a config: stock vLLM."""
        return self._config is None and not self.ledger.zones

    def zone_of_early_requests(self, count: int) -> Zone:
        """A zone for ``count`` requests that came before any zone was declared.

        It is promised nothing and takes no others: it goes with the last of them, and each block that they let go is
        free at once.
        """
        spec = ZoneSpec(EARLY_TENANT, EARLY_TENANT, 0, 0, Quota(0, self._capacity, 0), IdleTimes(inf))
        zone = new_zone(spec, self.ledger.now, self.ledger.links)
        self.ledger.add(zone)
        zone.leaving = True
        for _ in range(count):
            states.request_arrived(self.ledger, zone)
        return zone

    def zone_for(self, tenant: str, now: float) -> Zone | None:
        """The zone that a tenant's new requests go to; None if they are refused."""
        zone = self.ledger.zones.get(tenant)
        if zone is not None and not zone.leaving:
            return zone
        unknown = self._registered_tenants
        if unknown is None:
            return None
        self.ledger.now = now
        spec = registration.spec_for(unknown, tenant, self._capacity, self._unpromised)
        if zone is None:
            zone = configure.add_zone(self.ledger, spec)
            self._timers.set(zone)
        else:
            configure.respec(self.ledger, zone, spec)
        return zone

    @property
    def _registered_tenants(self) -> UnknownTenants | None:
        return None if self._config is None else _registered_tenants(self._config)

    @property
    def _unpromised(self) -> int:
        """Blocks that nobody has reserved."""
        return self._capacity - self.ledger.standings.promised

    def request_arrived(self, zone: Zone, now: float) -> None:
        """A request was bound to the zone."""
        self.ledger.now = now
        states.request_arrived(self.ledger, zone)

    def request_finished(self, zone: Zone, now: float) -> None:
        """A request of the zone has ended, however it ended, and holds no blocks any more."""
        self.ledger.now = now
        states.request_finished(self.ledger, zone)
        if zone.requests == 0:
            self._stalls.end(zone, now)
        configure.discard_if_gone(self.ledger, zone)
        if self.ledger.is_present(zone):
            self._timers.set(zone)

    def refused(self, tenant: str | None, reason: RefusalReason) -> None:
        """A request was refused; the tenant is None if it shows none that could be believed."""
        self.ledger.trail.refused(tenant, reason)
        self.refusals[reason] = self.refusals.get(reason, 0) + 1
        zone = None if tenant is None else self.ledger.zones.get(tenant)
        if zone is not None and not zone.leaving:
            zone.counters.request_ended("refused")

    def relieve(self, zone: Zone, count: int, free: int, peak: int = 0) -> Evictions:
        """Make room for a zone's next request that was denied ``count`` blocks, if they are merely cached by others."""
        return relieve(self.ledger, zone, count, free, peak)

    def must_wait(self, zone: Zone, count: int, free: int, peak: int = 0) -> None:
        """A zone's next request, of this peak, waits, because it was denied so many blocks."""
        self._stalls.begin(zone, count, self.ledger.wait_reason(zone, count, free, peak), self.ledger.now)

    def may_go_on(self, zone: Zone) -> None:
        """A zone's next request need not wait for blocks."""
        self._stalls.end(zone, self.ledger.now)

    def nobody_waits(self) -> None:
        """No zone's next request waits for blocks now: the engine takes on none."""
        self._stalls.end_all(self.ledger.now)

    def why_never(self, zone: Zone, count: int, peak: int) -> str:
        """Why a zone's next request, which asks for so many blocks, can never have them."""
        return (
            f"it needs {count} blocks; zone {zone.spec.tenant} can have {self.ledger.standings.reachable(zone, peak)} "
            f"of this engine's {self._capacity} at the most: its limit is {zone.spec.quota.limit}, "
            f"and other zones keep the rest"
        )

    def count(self, zone: Zone) -> None:
        """Bring a zone's counters up to date, before somebody reads them."""
        self.ledger.accrue(zone)
        self._stalls.count(zone, self.ledger.now)

    def upkeep(self, now: float, free: int) -> Evictions:
        """What time does: zones become quiet, give up their blocks, are forgotten; loans are settled and fall due; free
        blocks are kept above the watermark. To be called several times a second.

        Args:
            now: the time.
            free: blocks that are free now.
        """
        self.ledger.now = now
        evicted = self._let_time_pass()
        free += _count(evicted)
        evicted += (repaid := self.collect_due(free))
        free += _count(repaid)
        if free < self._watermarks.low:
            evicted += evict_to_watermark(self.ledger, self._watermarks.high - free)
        return evicted

    def collect_due(self, free: int) -> Evictions:
        """Settle the loans, and take back what stands on those past their due time and is only cached.

        What is in use is overdue. ``free`` blocks are free now.
        """
        self.loans.settle(free)
        for zone in self._overdue:
            zone.overdue = 0
            self.ledger.standings.stir(zone)
        self._overdue = []
        evicted: Evictions = []
        for loan in self.loans.due():
            borrower = loan.borrower
            blocks = min(loan.blocks, len(borrower.cached), borrower.surplus)
            if blocks:
                evicted.append((borrower, self.ledger.evict(borrower, blocks, "due", loan.lender)))
                self.loans.repay(loan, blocks)
            if loan.blocks:
                borrower.overdue += loan.blocks
                self._overdue.append(borrower)
        return evicted

    def past_grace(self) -> list[Zone]:
        """Zones whose running requests must be preempted now, until they stand on no loan that is past its grace."""
        if not self._overdue:
            return []
        now = self.ledger.now
        return [loan.borrower for loan in self.loans.due() if loan.grace_until is not None and loan.grace_until <= now]

    def usage(self) -> list[Event]:
        """What each zone has used, and each borrower of each lender, where that is more than was told before."""
        return list(chain.from_iterable(self.usage_in_slices()))

    def usage_in_slices(self, at_once: int = MAX_AT_ONCE) -> Iterator[Iterator[Event]]:
        """The same, with pauses in which anything may happen to zones; ``at_once`` of them are looked at in between."""
        return tell_usage(self.ledger, self.loans, at_once)

    def _let_time_pass(self) -> Evictions:
        evicted: Evictions = []
        promised = self.ledger.standings.promised
        for zone in list(self._timers.gone_off(self.ledger.now)):
            if not self.ledger.is_present(zone):
                continue
            evicted.append((zone, states.advance(self.ledger, zone)))
            if states.is_forgotten(self.ledger, zone):
                zone.leaving = True
                configure.discard_if_gone(self.ledger, zone)
            else:
                self._timers.set(zone, self.ledger.now)
        if self.ledger.standings.promised < promised and self._registered_tenants is not None:
            evicted += registration.give_awaited(self.ledger, self._registered_tenants, self._capacity)
        return evicted


def _registered_tenants(config: RuntimeConfig) -> UnknownTenants | None:
    """What the config says of tenants that it does not declare; None: they are refused."""
    unknown = config.pool.unknown_tenants
    return None if unknown.mode == "Reject" else unknown


def _count(evicted: Evictions) -> int:
    return sum(len(blocks) for _, blocks in evicted)

"""All zones of one engine: what an engine's adapter talks to when configs, requests and time come in.

Blocks are taken and let go through the ledger, and room for them is made by ``eviction``; this is for everything else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import get_args

from tenantzone_contract.config import PoolConfig, RuntimeConfig, UnknownTenantTemplate
from tenantzone_runtime.zones import configure, states
from tenantzone_runtime.zones.audit import ConfigApplied, Event, RefusalReason
from tenantzone_runtime.zones.eviction import Evictions, reclaim, relieve
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.loans import LoanBook
from tenantzone_runtime.zones.stalls import Stalls
from tenantzone_runtime.zones.timers import Timers
from tenantzone_runtime.zones.usage import MAX_AT_ONCE, tell_usage
from tenantzone_runtime.zones.zone import Zone


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Free blocks under which background reclaim starts, and up to which it goes on."""

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
        specs = configure.zone_specs(config, self._capacity)
        self.ledger.now = now
        self.ledger.trail.note(ConfigApplied(config.generation, config.hash, len(specs)))
        self._config = config
        marks = config.pool.watermarks
        self._watermarks = Watermarks(int(marks.low * self._capacity), int(marks.high * self._capacity))
        evicted = configure.apply(self.ledger, specs, self._template, self._capacity)
        for zone in self.ledger.zones.values():
            # A window that the config made shorter may be over already.
            self._timers.set_at(zone, now)
        return evicted

    @property
    def pool(self) -> PoolConfig | None:
        """What the config in force says of the pool; None: none is."""
        return None if self._config is None else self._config.pool

    @property
    def is_open_to_anybody(self) -> bool:
        """Whether requests need no zone, because none is declared and none would be made."""
        return self._template is None and all(zone.leaving for zone in self.ledger.zones.values())

    def zone_for(self, tenant: str, now: float) -> Zone | None:
        """The zone that a tenant's new requests go to; None if they are refused."""
        zone = self.ledger.zones.get(tenant)
        if zone is not None and not zone.leaving:
            return zone
        if self._template is None:
            return None
        self.ledger.now = now
        spec = configure.unknown_tenant_spec(self._template, tenant, self._capacity)
        if zone is None:
            zone = configure.add_zone(self.ledger, spec)
            self._timers.set(zone)
        else:
            configure.respec(self.ledger, zone, spec)
        return zone

    @property
    def _template(self) -> UnknownTenantTemplate | None:
        if self._config is None or self._config.pool.unknown_tenants.mode == "Reject":
            return None
        return self._config.pool.unknown_tenants.template

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

    def relieve(self, zone: Zone | None, count: int, free: int) -> Evictions:
        """Make room for a zone's next request that was denied ``count`` blocks, if they are merely cached by others.

        None is for a request from before any zone was declared.
        """
        return relieve(self.ledger, zone, count, free)

    def must_wait(self, zone: Zone, count: int, free: int) -> None:
        """A zone's next request waits, because it was denied so many blocks in this step."""
        self._stalls.begin(zone, count, self.ledger.wait_reason(zone, count, free), self.ledger.now)

    def may_go_on(self, zone: Zone) -> None:
        """A zone's next request need not wait for blocks."""
        self._stalls.end(zone, self.ledger.now)

    def end_step(self) -> None:
        """The step is made: zones that it has not found waiting do not wait for blocks now."""
        self._stalls.end_step(self.ledger.now)

    def count(self) -> None:
        """Bring all counters up to date, before somebody reads them."""
        for zone in self.ledger.zones.values():
            self.ledger.accrue(zone)
        self._stalls.count(self.ledger.now)

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
            evicted += reclaim(self.ledger, self._watermarks.high - free)
        return evicted

    def collect_due(self, free: int) -> Evictions:
        """Settle the loans, and take back what stands on those past their due time and is only cached.

        What is in use is overdue. ``free`` blocks are free now.
        """
        self.loans.settle(free)
        for zone in self._overdue:
            zone.overdue = 0
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
        for zone in list(self._timers.gone_off(self.ledger.now)):
            evicted.append((zone, states.advance(self.ledger, zone)))
            if states.is_forgotten(self.ledger, zone):
                zone.leaving = True
                configure.discard_if_gone(self.ledger, zone)
            else:
                self._timers.set(zone, self.ledger.now)
        return evicted


def _count(evicted: Evictions) -> int:
    return sum(len(blocks) for _, blocks in evicted)

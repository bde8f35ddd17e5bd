"""The tenancy of one engine, with all its zones: the engine adapter's interface for configs, requests and time.

Blocks are not allocated and released here but in the ledger, and ``eviction`` makes room for them.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from math import inf
from typing import Final, Literal, get_args

from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.zones.audit.events import Event, RefusalReason
from tenantzone_runtime.zones.blocks import states
from tenantzone_runtime.zones.blocks.eviction import Evictions, cover_loans, evict_surplus_for, evict_to_watermark
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.blocks.loan import Loan
from tenantzone_runtime.zones.blocks.loans import LoanBook
from tenantzone_runtime.zones.blocks.timers import Timers
from tenantzone_runtime.zones.blocks.usage import MAX_AT_ONCE, report_usage
from tenantzone_runtime.zones.config import configure
from tenantzone_runtime.zones.config.enforcement import Enforcement
from tenantzone_runtime.zones.model.parts import ALL, zones_for
from tenantzone_runtime.zones.model.quota import Quota
from tenantzone_runtime.zones.model.step_time import StepTimes
from tenantzone_runtime.zones.model.wait_accounting import WaitAccounting
from tenantzone_runtime.zones.model.zone import EARLY_TENANT, Zone, ZoneSpec, new_zone

Preparation = Literal["grammar", "load"]
"""Wait reasons of requests that steps do not consider yet, because they are still being prepared."""
PREPARATIONS: Final = get_args(Preparation)


class Tenancy:
    """The tenancy of one engine: its zones, their loans, timers and wait times, and the active config.

    Args:
        block_count: block ids run from 0 to ``block_count - 1``.
        capacity: number of blocks that requests can use; no more than ``block_count``.
        now: current time in seconds of any monotonic clock.
        lends_cache: whether quiet zones also lend to running requests the blocks that they keep cached within their
            reservations. This is useless in a tier, where no requests run.
    """

    def __init__(self, block_count: int, capacity: int, now: float = 0.0, *, lends_cache: bool = True) -> None:
        self.ledger = Ledger(block_count, now, capacity, lends_cache=lends_cache)
        self.loans = LoanBook(self.ledger)
        self._capacity = capacity
        self._timers = Timers()
        self.ledger.departures.append(self._timers.forget)
        self.enforcement = Enforcement(self.ledger, capacity, self._timers)
        self._overdue: list[Zone] = []
        self._waits = WaitAccounting()
        self.step_times = StepTimes()
        self.refusals: dict[RefusalReason, int] = dict.fromkeys(get_args(RefusalReason), 0)
        """Number of refused requests by reason, which never decreases."""

    def apply(self, config: RuntimeConfig, now: float) -> Evictions:
        """Apply a new config in one go; requests in flight stay. Returns the evicted blocks."""
        plan = self.enforcement.plan(config)
        self.enforcement.begin(plan, now)
        evicted = list(self.enforcement.make(self.enforcement.changes(plan)))
        return evicted + self.enforcement.end(plan)

    @property
    def pool(self) -> PoolConfig | None:
        """The pool settings of the newest config; None if there has been no config yet."""
        config = self.enforcement.config
        return None if config is None else config.pool

    @property
    def is_open_to_anybody(self) -> bool:
        """Whether requests need no zone, as in stock vLLM, because there has been no config yet."""
        return self.enforcement.config is None and not self.ledger.zones

    def zone_of_early_requests(self, count: int) -> Zone:
        """Create a zone for ``count`` requests that arrived before any zone was declared.

        The zone has no reservation and gets no other requests. Each block that these requests release is free at once,
        and the zone is removed with the last request.
        """
        spec = ZoneSpec(EARLY_TENANT, EARLY_TENANT, 0, 0, Quota(0, self._capacity, 0), Idle(after_seconds=inf))
        zone = new_zone(spec, self.ledger.now, self.ledger.links)
        self.ledger.add(zone)
        zone.leaving = True
        for _ in range(count):
            states.request_arrived(self.ledger, zone)
        return zone

    def zone_for(self, tenant: str, now: float) -> Zone | None:
        """Returns the zone for a tenant's new requests; None if they are refused."""
        zone = self.ledger.zones.get(tenant)
        if zone is not None and not zone.leaving:
            return zone
        self.ledger.now = now
        return self.enforcement.register(tenant)

    def request_arrived(self, zone: Zone, now: float) -> None:
        """Note that a request was bound to the zone."""
        self.ledger.now = now
        states.request_arrived(self.ledger, zone)

    def request_finished(self, zone: Zone, now: float) -> None:
        """Note that a request of the zone has ended, for whatever reason, and has released its blocks."""
        self.ledger.now = now
        states.request_finished(self.ledger, zone)
        if zone.requests == 0:
            self._waits.leave(zone, now)
        configure.discard_if_gone(self.ledger, zone)
        if self.ledger.is_present(zone):
            self._timers.set(zone)

    def refused(self, tenant: str | None, reason: RefusalReason, *, is_ended: bool = True) -> None:
        """Count a refused request.

        Args:
            tenant: the request's tenant, or None if the request has no trusted tenant.
            reason: the reason.
            is_ended: whether to count the request among its zone's ended requests, too.
        """
        self.ledger.trail.refused(tenant, reason)
        self.refusals[reason] = self.refusals.get(reason, 0) + 1
        zone = None if tenant is None else self.ledger.zones.get(tenant)
        if is_ended and zone is not None and not zone.leaving:
            zone.counters.request_ended("queue_full" if reason == "queue_full" else "refused")

    def evict_surplus_for(self, zone: Zone, count: int, free: int, peak: int = 0) -> Evictions:
        """By surplus reclaim, make room for a zone's next request, which was denied ``count`` blocks."""
        return evict_surplus_for(self.ledger, zone, count, free, peak)

    def must_wait(self, zone: Zone, count: int, free: int, peak: int = 0) -> None:
        """Note that a zone's next request waits because it was denied ``count`` blocks.

        ``free`` blocks are free now, and the request uses ``peak`` blocks when it is longest.
        """
        self._waits.begin(zone, count, self.ledger.wait_reason(zone, count, free, peak), self.ledger.now)

    def must_wait_for_own_seat(self, zone: Zone) -> None:
        """Note that a zone's next request waits because the zone has reached its limit of seats."""
        self._waits.begin(zone, 0, "seat_limit", self.ledger.now)

    def must_wait_for_tokens(self, zone: Zone) -> None:
        """Note that a zone's next request waits because the zone's share of the step's tokens is used up."""
        self._waits.begin(zone, 0, "tokens", self.ledger.now)

    def must_wait_for_adapter(self, zone: Zone) -> None:
        """Note that a zone's next request waits because its LoRA adapter has no slot."""
        self._waits.begin(zone, 0, "adapter", self.ledger.now)

    def must_wait_for_encoder(self, zone: Zone) -> None:
        """Note that a zone's next request waits because its image, sound or video has no room in the encoder."""
        self._waits.begin(zone, 0, "encoder", self.ledger.now)

    def must_be_prepared(self, zone: Zone, reason: Preparation | None) -> None:
        """Set the preparation for which all waiting requests of a zone wait; None if they wait for no preparation."""
        if reason is not None:
            self._waits.begin(zone, 0, reason, self.ledger.now)
        elif zone.wait_reason in PREPARATIONS:
            self._waits.end(zone, self.ledger.now)

    def may_go_on(self, zone: Zone) -> None:
        """Note that a zone's next request need not wait any longer for blocks or for its zone's limit of seats."""
        self._waits.end(zone, self.ledger.now)

    def waits(self, zone: Zone) -> None:
        """Note that the zone has a waiting request."""
        self._waits.enter(zone, self.ledger.now)

    def waits_no_more(self, zone: Zone) -> None:
        """Note that the zone has no waiting request."""
        self._waits.leave(zone, self.ledger.now)

    def seats_are(self, *, taken: bool) -> None:
        """Note whether all seats of the engine are taken from now on."""
        self._waits.seats_are(taken=taken, now=self.ledger.now)

    @property
    def is_full(self) -> bool:
        """Whether all seats of the engine were taken after its last step."""
        return self._waits.is_full

    def nobody_waits(self) -> None:
        """Note that no zone's next request counts as waiting, because the engine admits no requests."""
        self._waits.end_all(self.ledger.now)
        self.seats_are(taken=False)

    def why_never(self, zone: Zone, count: int, peak: int) -> str:
        """Returns the reason why a zone's next request can never have the ``count`` blocks that it needs."""
        return (
            f"the request needs {count} blocks, but zone {zone.spec.tenant} can have at most "
            f"{self.ledger.totals.reachable(zone, peak)} of this engine's {self._capacity}, because of its limit "
            f"of {zone.spec.quota.limit} and the blocks that other zones never lend"
        )

    def count(self, zone: Zone) -> None:
        """Update a zone's counters before they are read."""
        self.ledger.accrue(zone)
        self._waits.count(zone, self.ledger.now)

    def upkeep(self, now: float, free: int) -> Evictions:
        """Advance the timers of zones and loans, and keep blocks free; to be called several times a second.

        Zones become quiet, lose their blocks and are forgotten. Loans are settled and become due.

        Args:
            now: current time in seconds.
            free: number of blocks that are free now.
        """
        evicted: Evictions = []
        parts = self.upkeep_in_parts(now, lambda: free + _count(evicted))
        for part in parts:
            evicted += part
        return evicted

    def upkeep_in_parts(self, now: float, free: Callable[[], int], at_once: int = ALL) -> Iterator[Evictions]:
        """Do the same as `upkeep` in parts, between which zones may change in any way.

        Args:
            now: current time in seconds.
            free: returns the number of free blocks.
            at_once: maximum number of blocks evicted in one part. Parts that only check zones are of similar cost.
        """
        self.ledger.now = now
        yield from self._let_time_pass(at_once)
        yield from self._expire(at_once)
        zones_at_once = zones_for(at_once)
        # The number of rounds depends on the zones changed so far. Zones that change between parts do not increase it.
        for _ in range(self.ledger.totals.changed // zones_at_once):
            self.loans.look_at(self.ledger.totals.take_changed(zones_at_once))
            yield []
        yield self.collect_due(free())
        yield from self._keep_watermark(free, at_once)

    def _keep_watermark(self, free: Callable[[], int], at_once: int) -> Iterator[Evictions]:
        """Evict up to the high watermark, if fewer blocks are free than the low watermark."""
        watermarks = self.enforcement.watermarks
        wanted = watermarks.high if free() < watermarks.low else 0
        while (missing := wanted - free()) > 0:
            evicted = evict_to_watermark(self.ledger, min(missing, at_once))
            if not evicted:
                return
            yield evicted

    def collect_due(self, free: int) -> Evictions:
        """Settle the loans, and evict cached blocks on loans that are due; ``free`` blocks are free now.

        Blocks of due loans that are in use become overdue.
        """
        self.loans.settle(free)
        self.loans.extend()
        owing, self._overdue = self._overdue, []
        for zone in owing:
            zone.overdue = 0
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
        for zone in owing:
            if not zone.overdue:
                self.ledger.totals.reconsider(zone)
        return evicted

    def past_grace(self) -> list[Zone]:
        """Returns the zones whose running requests must be preempted until they use no loan past its grace period."""
        return list(dict.fromkeys(loan.borrower for loan in self._past_grace()))

    def cover_loans(self, borrower: Zone) -> Evictions:
        """Evict blocks that other zones only keep cached, if that ends due loans of a borrower.

        Only loans whose grace period is over count. If anything was evicted, this method can be called again after the
        loans are settled.
        """
        count = sum(loan.blocks for loan in self._past_grace() if loan.borrower is borrower)
        return cover_loans(
            self.ledger,
            borrower,
            count,
            lambda zone: self.loans.covers(zone, borrower),
            lambda zone: self.loans.takes_over(zone, borrower),
        )

    def _past_grace(self) -> Iterator[Loan]:
        now = self.ledger.now
        for loan in self.loans.due() if self._overdue else ():
            if loan.is_past_grace(now):
                yield loan

    def usage(self) -> list[Event]:
        """Returns usage events: one for each zone, and each pair of lender and borrower, whose usage has grown."""
        return list(chain.from_iterable(self.usage_in_slices()))

    def usage_in_slices(self, at_once: int = MAX_AT_ONCE) -> Iterator[Iterator[Event]]:
        """Returns the events of `usage` in slices of ``at_once`` zones or loans, between which zones may change."""
        return report_usage(self.ledger, self.loans, at_once)

    def _expire(self, at_once: int) -> Iterator[Evictions]:
        for zone in self.ledger.expiry.gone_off(self.ledger.now):
            yield [(zone, self.ledger.evict_expired(zone, at_once))]

    def _let_time_pass(self, at_once: int) -> Iterator[Evictions]:
        now, freed = self.ledger.now, 0
        for zone in self._timers.pop_due(now):
            if not self.ledger.is_present(zone):
                continue
            evicted = states.advance(self.ledger, zone, at_once)
            if len(evicted) == at_once:
                # The zone may have more blocks to evict, so it is considered again after the other due zones.
                self._timers.set_at(zone, now)
            elif states.is_forgotten(self.ledger, zone):
                zone.leaving = True
                freed += zone.spec.quota.reserved
                configure.discard_if_gone(self.ledger, zone)
            else:
                self._timers.set(zone, now)
            yield [(zone, evicted)]
        if freed:
            yield self.enforcement.give_awaited()


def _count(evicted: Evictions) -> int:
    return sum(len(blocks) for _, blocks in evicted)

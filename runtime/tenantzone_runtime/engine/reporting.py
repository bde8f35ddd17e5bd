"""From the scheduler's state to the engine's report, and to the figures of a scrape."""

import time
from collections import Counter
from collections.abc import Callable, Mapping

import vllm

from tenantzone_contract.report import ConfigStatus, EngineReport, LoanReport, ZoneReport
from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.engine.scheduling import ZoneAwareScheduler
from tenantzone_runtime.metrics.figures import EngineFigures, ReloadResult, ZoneFigures
from tenantzone_runtime.zones.counters import Counters
from tenantzone_runtime.zones.loans import Loan
from tenantzone_runtime.zones.overflow import OVERFLOW_NAME
from tenantzone_runtime.zones.zone import Zone


class _Tallies:
    """What is known of zones only together. To be made between two steps."""

    def __init__(self, scheduler: ZoneAwareScheduler) -> None:
        scheduler.tenancy.count()
        self.running = Counter(zone_of(request) for request in scheduler.running)
        self.all_loans = list(scheduler.tenancy.loans)
        self.lent, self.borrowed, self.loans = Counter[Zone](), Counter[Zone](), Counter[Zone]()
        for loan in self.all_loans:
            self.lent[loan.lender] += loan.blocks
            self.borrowed[loan.borrower] += loan.blocks
            self.loans[loan.lender] += 1


def make_report(
    scheduler: ZoneAwareScheduler, config: ConfigStatus, *, pod: str, started_unix_time: float
) -> EngineReport:
    """An immutable snapshot, made between two steps."""
    with scheduler.zone_lock:
        pool = scheduler.block_pool
        tallies = _Tallies(scheduler)
        zones = tuple(_zone_report(zone, tallies) for zone in pool.ledger.zones.values() if not zone.leaving)
        return EngineReport(
            engine_version=vllm.__version__,
            pod=pod,
            capacity_blocks=pool.capacity,
            block_size_tokens=scheduler.block_size,
            free_blocks=pool.free_block_queue.num_free_blocks,
            config=config,
            zones=zones,
            loans=tuple(_loan_report(loan) for loan in tallies.all_loans),
            started_unix_time=started_unix_time,
            published_unix_time=time.time(),
        )


def make_figures(
    scheduler: ZoneAwareScheduler,
    config: ConfigStatus,
    reloads: Mapping[ReloadResult, int],
    *,
    pod: str,
    started_unix_time: float,
) -> EngineFigures:
    """What a scrape tells: an immutable snapshot, made between two steps."""
    with scheduler.zone_lock:
        pool, tenancy = scheduler.block_pool, scheduler.tenancy
        overflow = tenancy.ledger.overflow
        tallies = _Tallies(scheduler)
        present = [zone for zone in tenancy.ledger.zones.values() if not zone.leaving]
        zones = [_zone_figures(zone, tallies, zone.counters.copy()) for zone in present if zone not in overflow]
        if overflow.is_in_use:
            members = [_zone_figures(zone, tallies, zone.counters) for zone in present if zone in overflow]
            zones.append(_added_up(members, overflow.counters()))
        return EngineFigures(
            vllm_version=vllm.__version__,
            pod=pod,
            pool=tenancy.pool.name if tenancy.pool is not None else "",
            pool_namespace=tenancy.pool.namespace if tenancy.pool is not None else "",
            capacity_blocks=pool.capacity,
            free_blocks=pool.free_block_queue.num_free_blocks,
            block_size_tokens=scheduler.block_size,
            started_unix_time=started_unix_time,
            taken_unix_time=time.time(),
            config=config,
            reloads=dict(reloads),
            refusals=dict(tenancy.refusals),
            zones=tuple(zones),
        )


def _loan_report(loan: Loan) -> LoanReport:
    unix_time_of_clock = time.time() - time.monotonic()
    return LoanReport(
        lender=loan.lender.spec.tenant,
        borrower=loan.borrower.spec.tenant,
        blocks=loan.blocks,
        since_unix_time=unix_time_of_clock + loan.since,
        due_unix_time=None if loan.due is None else unix_time_of_clock + loan.due,
    )


def _zone_report(zone: Zone, tallies: _Tallies) -> ZoneReport:
    spec, counters = zone.spec, zone.counters
    return ZoneReport(
        name=spec.name,
        tenant=spec.tenant,
        generation=spec.generation,
        state=zone.state,
        reserved=spec.quota.reserved,
        limit=spec.quota.limit,
        in_use=zone.in_use,
        cached=len(zone.cached),
        waiting_requests=zone.requests - tallies.running[zone],
        running_requests=tallies.running[zone],
        prefix_query_tokens=counters.prefix_query_tokens,
        prefix_hit_tokens=counters.prefix_hit_tokens,
        prompt_tokens=counters.prompt_tokens,
        generation_tokens=counters.generation_tokens,
        evicted_blocks=counters.evicted,
        preemptions=counters.preemptions,
        violations=counters.violations,
        wait_reason=zone.wait_reason,
        auto_registered=spec.auto_registered,
        level=spec.level,
        awaited_reservation=spec.awaited,
        lent=tallies.lent[zone],
        borrowed=tallies.borrowed[zone],
        block_seconds=counters.block_seconds,
    )


def _zone_figures(zone: Zone, tallies: _Tallies, counters: Counters) -> ZoneFigures:
    spec, running = zone.spec, tallies.running[zone]
    return ZoneFigures(
        name=spec.name,
        tenant=spec.tenant,
        in_use=zone.in_use,
        cached=len(zone.cached),
        reserved=spec.quota.reserved,
        limit=spec.quota.limit,
        lent=tallies.lent[zone],
        borrowed=tallies.borrowed[zone],
        overdue=zone.overdue,
        short=zone.short,
        loans=tallies.loans[zone],
        waiting_requests=zone.requests - running,
        running_requests=running,
        weight=spec.weight,
        priority=spec.priority,
        state=zone.state,
        counters=counters,
    )


def _added_up(members: list[ZoneFigures], counters: Counters) -> ZoneFigures:
    """The overflow zone. Its priority is the highest of its members, which may be of several levels."""

    def total(value: Callable[[ZoneFigures], int]) -> int:
        return sum(map(value, members))

    states = {zone.state for zone in members}
    return ZoneFigures(
        name=OVERFLOW_NAME,
        tenant=OVERFLOW_NAME,
        in_use=total(lambda zone: zone.in_use),
        cached=total(lambda zone: zone.cached),
        reserved=total(lambda zone: zone.reserved),
        limit=total(lambda zone: zone.limit),
        lent=total(lambda zone: zone.lent),
        borrowed=total(lambda zone: zone.borrowed),
        overdue=total(lambda zone: zone.overdue),
        short=total(lambda zone: zone.short),
        loans=total(lambda zone: zone.loans),
        waiting_requests=total(lambda zone: zone.waiting_requests),
        running_requests=total(lambda zone: zone.running_requests),
        weight=total(lambda zone: zone.weight),
        priority=max((zone.priority for zone in members), default=0),
        state="Active" if "Active" in states else "Idle" if "Idle" in states else "Evicted",
        counters=counters,
    )

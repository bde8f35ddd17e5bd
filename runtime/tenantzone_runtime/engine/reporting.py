"""From the scheduler's state to the engine's report."""

import time
from collections import Counter

import vllm

from tenantzone_contract.report import ConfigStatus, EngineReport, LoanReport, ZoneReport
from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.engine.scheduling import ZoneAwareScheduler
from tenantzone_runtime.zones.loans import Loan
from tenantzone_runtime.zones.zone import Zone


def make_report(
    scheduler: ZoneAwareScheduler, config: ConfigStatus, *, pod: str, started_unix_time: float
) -> EngineReport:
    """An immutable snapshot, made between two steps."""
    with scheduler.zone_lock:
        pool = scheduler.block_pool
        running = Counter(zone_of(request) for request in scheduler.running)
        for zone in pool.ledger.zones.values():
            pool.ledger.accrue(zone)
        loans = list(scheduler.tenancy.loans)
        lent, borrowed = Counter[Zone](), Counter[Zone]()
        for loan in loans:
            lent[loan.lender] += loan.blocks
            borrowed[loan.borrower] += loan.blocks
        zones = tuple(
            _zone_report(zone, running[zone], lent[zone], borrowed[zone])
            for zone in pool.ledger.zones.values()
            if not zone.leaving
        )
        return EngineReport(
            engine_version=vllm.__version__,
            pod=pod,
            capacity_blocks=pool.capacity,
            block_size_tokens=scheduler.block_size,
            free_blocks=pool.free_block_queue.num_free_blocks,
            config=config,
            zones=zones,
            loans=tuple(_loan_report(loan) for loan in loans),
            started_unix_time=started_unix_time,
            published_unix_time=time.time(),
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


def _zone_report(zone: Zone, running: int, lent: int, borrowed: int) -> ZoneReport:
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
        waiting_requests=zone.requests - running,
        running_requests=running,
        prefix_query_tokens=counters.prefix_query_tokens,
        prefix_hit_tokens=counters.prefix_hit_tokens,
        prompt_tokens=counters.prompt_tokens,
        generation_tokens=counters.generation_tokens,
        evicted_blocks=dict(counters.evicted),
        preemptions=counters.preemptions,
        violations=counters.violations,
        wait_reason=zone.wait_reason,
        auto_registered=spec.auto_registered,
        lent=lent,
        borrowed=borrowed,
        block_seconds=counters.block_seconds,
    )

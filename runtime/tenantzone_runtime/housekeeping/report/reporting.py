"""Builds the report, and the figures for a scrape, from an engine's state.

The module ``copying`` copies the state in slices. The state of each zone is consistent, and so is the state of the
pool. But two zones, or a zone and the pool, may be copied at different times.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from tenantzone_contract.reports.parts import MAX_SECONDS
from tenantzone_contract.reports.report import (
    AdapterReport,
    AdminPortStatus,
    ApiServerReport,
    ConfigStatus,
    EncoderUseReport,
    EngineReport,
    IdentityReport,
    LoanReport,
    SaltKeyStatus,
)
from tenantzone_contract.reports.summary import busiest
from tenantzone_contract.reports.zone_report import LatencyReport, PurgeReport, TargetReport, ZoneReport
from tenantzone_contract.zone_config.identity import identity_digest
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.housekeeping.report.copying import (
    LoanCopy,
    ZoneCopy,
    copy_adapters,
    copy_encoder_use,
    copy_loans,
    copy_pool,
    copy_zones,
    held,
)
from tenantzone_runtime.housekeeping.report.tier_copying import TierCopy, TierZoneCopy, copy_tiers
from tenantzone_runtime.housekeeping.report.tier_reporting import (
    tier_figures,
    tier_report,
    zone_tier_figures,
    zone_tier_report,
)
from tenantzone_runtime.metrics.figures import EngineFigures, ReloadResult, StepFigures, ZoneFigures
from tenantzone_runtime.zones.blocks.overflow import OVERFLOW_NAME
from tenantzone_runtime.zones.model.counters import Counters, evicted_by_reason
from tenantzone_runtime.zones.model.flat import put_mapping, take, take_mapping
from tenantzone_runtime.zones.model.outcomes import TargetName, TargetOutcome
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.seats import own_seats
from tenantzone_runtime.zones.tenancy import Tenancy

_REPORTED: Final = (
    "prefix_query_tokens",
    "prefix_hit_tokens",
    "prompt_tokens",
    "generation_tokens",
    "computed_tokens",
    "computed_first_tokens",
    "recomputed_tokens",
    "withheld_tokens",
    "preemptions",
    "violations",
    "scrubbed_blocks",
    "block_seconds",
)
"""Names of the counters that have the same name in a zone's report."""
_read_reported = attrgetter(*_REPORTED)

_OWN_SALT_KEY: Final = SaltKeyStatus()
_API_KEYS: Final = IdentityReport(kind="APIKeys", digest=identity_digest(None))
_CLOSED: Final = AdminPortStatus()

_NOT_TOLD: Final = Counters()
"""The counters of a zone that is reported only as a part of the overflow zone."""


class _Lending:
    """Sums of loans by zone: the blocks lent, the blocks borrowed, and the number of loans that the zone has given."""

    def __init__(self, loans: Sequence[LoanCopy]) -> None:
        self.lent, self.borrowed, self.loans = Counter[Zone](), Counter[Zone](), Counter[Zone]()
        for loan in loans:
            self.lent[loan.lender] += loan.blocks
            self.borrowed[loan.borrower] += loan.blocks
            self.loans[loan.lender] += 1


def make_report(
    engine: ServedEngine,
    config: ConfigStatus,
    *,
    pod: str,
    started_unix_time: float,
    pod_uid: str = "",
    boot_id: str = "",
    salt_key: SaltKeyStatus = _OWN_SALT_KEY,
    identity: IdentityReport = _API_KEYS,
    api_servers: Sequence[ApiServerReport] | None = None,
    missing_api_servers: int = 0,
    admin_port: AdminPortStatus = _CLOSED,
) -> EngineReport:
    """Returns a report of an engine. Each zone's lent and borrowed blocks are the sums of the reported loans."""
    published_unix_time = time.time()
    pool = copy_pool(engine)
    loans = copy_loans(engine, pool.loans)
    lending = _Lending(loans)
    unscrubbed = engine.tenancy.ledger.unscrubbed

    def put(zone: Zone, values: list[Any]) -> None:
        values.append(unscrubbed.get(zone.spec.tenant, 0))
        _put_reported(zone, values)

    tiers = copy_tiers(engine)
    zones = copy_zones(engine, pool.zones, put, _take_reported)
    return EngineReport(
        engine_version=engine.engine_version,
        pod=pod,
        pod_uid=pod_uid,
        boot_id=boot_id,
        capacity_blocks=len(engine.block_ids),
        block_size_tokens=engine.block_size_tokens,
        free_blocks=pool.free_blocks,
        seats=engine.tenancy.ledger.totals.seats,
        adapter_slots=engine.adapter_slots,
        adapters=tuple(
            AdapterReport(adapter=adapter, tenants=tuple(zone.spec.tenant for zone in zones))
            for adapter, zones in copy_adapters(engine).items()
        ),
        encoder_embeddings=engine.encoder_embeddings,
        encoder_use=tuple(
            EncoderUseReport(tenant=zone.spec.tenant, embeddings=embeddings)
            for zone, embeddings in copy_encoder_use(engine).items()
        ),
        config=config,
        salt_key=salt_key,
        identity=identity,
        api_servers=tuple(api_servers) if api_servers is not None else None,
        missing_api_servers=missing_api_servers,
        admin_port=admin_port,
        tiers=tuple(map(tier_report, tiers)),
        zones=tuple(_zone_report(zone, counts, lending, tiers, engine.tenancy) for zone, counts in zones),
        loans=tuple(map(_loan_report, loans)),
        started_unix_time=started_unix_time,
        published_unix_time=published_unix_time,
    )


def make_figures(
    engine: ServedEngine,
    config: ConfigStatus,
    reloads: Mapping[ReloadResult, int],
    *,
    pod: str,
    started_unix_time: float,
    refused_at_admin_port: int = 0,
) -> EngineFigures:
    """Returns the figures for one scrape of the metrics."""
    taken_unix_time = time.time()
    pool = copy_pool(engine)
    lending = _Lending(copy_loans(engine, pool.loans))
    tiers = copy_tiers(engine)
    overflow = engine.tenancy.ledger.overflow

    def put(zone: Zone, values: list[Any]) -> None:
        is_member = zone in overflow
        values.append(is_member)
        if is_member:
            overflow.count(zone)
        else:
            zone.counters.put(values)

    def take_own(values: Iterator[Any]) -> Counters | None:
        is_member = next(values)
        return None if is_member else Counters.take(values)

    zones: list[ZoneFigures] = []
    members: list[ZoneFigures] = []
    for zone, counters in copy_zones(engine, pool.zones, put, take_own):
        if counters is None:
            members.append(_zone_figures(zone, lending, _NOT_TOLD, ()))
        else:
            zones.append(_zone_figures(zone, lending, counters, tiers))
    steps = engine.tenancy.step_times
    with held(engine.zone_lock):
        is_in_use, total = overflow.is_in_use, overflow.total()
    if is_in_use:
        zones.append(_added_up(members, total))
    return EngineFigures(
        engine_version=engine.engine_version,
        pod=pod,
        pool=pool.config.name if pool.config is not None else "",
        pool_namespace=pool.config.namespace if pool.config is not None else "",
        capacity_blocks=len(engine.block_ids),
        free_blocks=pool.free_blocks,
        block_size_tokens=engine.block_size_tokens,
        started_unix_time=started_unix_time,
        taken_unix_time=taken_unix_time,
        config=config,
        reloads=dict(reloads),
        refusals=pool.refusals,
        refused_at_admin_port=refused_at_admin_port,
        steps=StepFigures(steps.steps, steps.actual_seconds, steps.predicted_seconds, steps.error_seconds),
        tiers=tuple(map(tier_figures, tiers)),
        zones=tuple(zones),
    )


def _loan_report(loan: LoanCopy) -> LoanReport:
    unix_time_of_clock = time.time() - time.monotonic()
    return LoanReport(
        lender=loan.lender.spec.tenant,
        borrower=loan.borrower.spec.tenant,
        blocks=loan.blocks,
        since_unix_time=unix_time_of_clock + loan.since,
        due_unix_time=None if loan.due is None else unix_time_of_clock + loan.due,
    )


def _put_reported(zone: Zone, values: list[Any]) -> None:
    purge = zone.purge
    values += ("", 0, 0) if purge is None or not purge.is_complete else (purge.id, purge.evicted, purge.withdrawn)
    values += _read_reported(zone.counters)
    put_mapping(values, zone.counters.evictions)


def _take_reported(values: Iterator[Any]) -> dict[str, Any]:
    """Returns the counter fields of a zone's report, from the values that `make_report` copied."""
    unscrubbed = next(values)
    purge_id, purged, withdrawn = take(values, 3)
    numbers = dict(zip(_REPORTED, take(values, len(_REPORTED)), strict=True))
    return numbers | {
        "unscrubbed_blocks": unscrubbed,
        "purge": PurgeReport(id=purge_id, evicted=purged, withdrawn=withdrawn) if purge_id else None,
        "evictions": evicted_by_reason(take_mapping(values)),
    }


def _zone_report(
    zone: ZoneCopy, counts: Mapping[str, Any], lending: _Lending, tiers: Sequence[TierCopy], tenancy: Tenancy
) -> ZoneReport:
    spec = zone.spec
    waiting = zone.requests - zone.running_requests
    return ZoneReport(
        name=spec.name,
        tenant=spec.tenant,
        generation=spec.generation,
        state=zone.state,
        reserved=spec.quota.reserved,
        limit=spec.quota.limit,
        in_use=zone.in_use,
        cached=zone.held - zone.in_use,
        waiting_requests=waiting,
        running_requests=zone.running_requests,
        waits_for=zone.wait_reason or ("seats" if waiting and tenancy.is_full else None),
        auto_registered=spec.auto_registered,
        level=spec.level,
        awaited_reservation=spec.awaited,
        reserved_seats=own_seats(spec, tenancy.ledger.totals),
        awaited_seats=spec.seats.awaited,
        latency=_latency_report(zone.zone.outcomes),
        lent=lending.lent[zone.zone],
        borrowed=lending.borrowed[zone.zone],
        tiers=tuple(zone_tier_report(tier, found) for tier, found in _in_tiers(spec.tenant, tiers)),
        **counts,
    )


def _in_tiers(tenant: str, tiers: Sequence[TierCopy]) -> Iterator[tuple[TierCopy, TierZoneCopy]]:
    return ((tier, found) for tier in tiers if (found := tier.zones.get(tenant)) is not None)


def _latency_report(outcomes: Mapping[TargetName, TargetOutcome]) -> LatencyReport | None:
    reported = {
        name: TargetReport(
            target_seconds=outcome.target,
            actual_seconds=None if outcome.actual is None else min(outcome.actual, MAX_SECONDS),
            met=outcome.met,
            reason=outcome.reason,
        )
        for name, outcome in outcomes.items()
    }
    return LatencyReport(**reported) if reported else None


def _zone_figures(zone: ZoneCopy, lending: _Lending, counters: Counters, tiers: Sequence[TierCopy]) -> ZoneFigures:
    spec = zone.spec
    return ZoneFigures(
        name=spec.name,
        tenant=spec.tenant,
        in_use=zone.in_use,
        cached=zone.held - zone.in_use,
        reserved=spec.quota.reserved,
        limit=spec.quota.limit,
        lent=lending.lent[zone.zone],
        borrowed=lending.borrowed[zone.zone],
        overdue=zone.overdue,
        short=zone.short,
        loans=lending.loans[zone.zone],
        waiting_requests=zone.requests - zone.running_requests,
        running_requests=zone.running_requests,
        weight=spec.weight,
        priority=spec.priority,
        state=zone.state,
        outcomes=zone.zone.outcomes,
        counters=counters,
        tiers=tuple(zone_tier_figures(tier, found) for tier, found in _in_tiers(spec.tenant, tiers)),
    )


def _added_up(members: list[ZoneFigures], counters: Counters) -> ZoneFigures:
    """Returns the overflow zone: the sum of its members, with the highest priority among them."""

    def total(value: Callable[[ZoneFigures], int]) -> int:
        return sum(map(value, members))

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
        state=busiest(zone.state for zone in members) or "Evicted",
        outcomes={},
        counters=counters,
    )

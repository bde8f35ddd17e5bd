"""Pure functions for the statuses of zones and pools, and a cache of zone statuses."""

from collections.abc import Mapping, Sequence
from typing import Any

from tenantzone_contract.reports.summary import STATUS_FIELDS, ZoneSummary
from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.views import ZoneView
from tenantzone_operator.kube.conditions import Condition, Type, render
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.kube.store import Overlap
from tenantzone_operator.planning.admission import AdmissionDecision, Budget
from tenantzone_operator.planning.plan import Plan
from tenantzone_operator.planning.tier_budget import NO_TIERS
from tenantzone_operator.status.acknowledgement import History
from tenantzone_operator.status.latency import ShownRanges, latency_target_met
from tenantzone_operator.status.overlaps import engines_elsewhere
from tenantzone_operator.status.purges import purge_record, purged
from tenantzone_operator.status.readiness import (
    acknowledged,
    applied,
    leaving_pool_conditions,
    not_served_conditions,
    pool_conditions,
    zone_conditions,
)
from tenantzone_operator.status.tiers import pool_tier_rows, tier_ineffective, tier_rows, zone_tiers_enforced


class ZoneStatuses:
    """Computes the statuses of a pool's zones, and caches them: of thousands of statuses, only a few change at once."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Zone, tuple[object, ...], Mapping[str, Any]]] = {}
        self._shown: dict[str, ShownRanges] = {}
        """Ranges in the zones' conditions about latency targets, by the zone's uid."""

    def make(
        self,
        zones: Sequence[Zone],
        decisions: Mapping[str, AdmissionDecision],
        observations: Sequence[Observation],
        history: History,
        *,
        now: str,
        not_written: str = "",
        overlaps: Sequence[Overlap] = (),
    ) -> dict[str, Mapping[str, Any]]:
        """Returns the zones' statuses by zone name.

        ``decisions`` has zone names as keys. For the other arguments, see `zone_status`.
        """
        engines = [
            (seen.pod, seen.error, seen.nack, seen.is_untrusted, seen.has_config, seen.lag, seen.tiers)
            for seen in observations
        ]
        elsewhere = engines_elsewhere(overlaps)
        made = {}
        for zone in zones:
            name, decision = zone.meta.name, decisions[zone.meta.name]
            reports = [seen.zones.get(name) for seen in observations]
            lacks = [history.lacks(seen, name) for seen in observations]
            has_it = applied(decision, observations, history), acknowledged(decision, observations, history)
            causes = (decision, reports, has_it, lacks, engines, not_written, elsewhere)
            known = self._made.get(name)
            if known is None or known[0] is not zone or known[1] != causes:
                before = known[2] if known is not None and known[0].meta.uid == zone.meta.uid else zone.status
                status = zone_status(
                    zone,
                    decision,
                    observations,
                    history,
                    before=before,
                    now=now,
                    not_written=not_written,
                    elsewhere=elsewhere,
                    shown=self._shown.setdefault(zone.meta.uid, ShownRanges()),
                )
                # Reuse the store's object if it is equal, because thousands of statuses use most of the memory.
                known = zone, causes, zone.status if status == zone.status else status
            made[name] = known
        self._made = made
        uids = {zone.meta.uid for zone in zones}
        self._shown = {uid: shown for uid, shown in self._shown.items() if uid in uids and shown.grades is not None}
        return {name: status for name, (_, _, status) in made.items()}


def zone_status(
    zone: Zone,
    decision: AdmissionDecision,
    observations: Sequence[Observation],
    history: History,
    *,
    before: Mapping[str, Any],
    now: str,
    not_written: str = "",
    elsewhere: str = "",
    shown: ShownRanges | None = None,
) -> dict[str, Any]:
    """Returns the complete status of a zone.

    Args:
        zone: the zone as stored in the API server.
        decision: the decision on the zone, with its entry in the newest snapshot.
        observations: one observation for each ready engine of the pool.
        history: the published snapshots.
        before: the zone's status as this operator last computed it, without later changes by other clients.
        now: the time as RFC 3339.
        not_written: why the newest snapshot could not be published; empty if it was published.
        elsewhere: a text that names other pools that own pods selected by the zone's pool; empty if there are none.
        shown: the latency ranges in the last status; this function updates them. None if unknown.
    """
    reports = [observation.zones.get(zone.meta.name) for observation in observations]
    done = acknowledged(decision, observations, history)
    purge = purge_record(zone, decision, observations, before, now)
    conditions = [
        *zone_conditions(zone, decision, observations, done, history, not_written, elsewhere),
        *purged(zone, decision, observations, purge, not_written),
        *latency_target_met(zone, observations, before.get("conditions", []), shown or ShownRanges()),
        *zone_tiers_enforced(zone, decision, observations, history),
        *tier_ineffective(zone, observations),
    ]
    in_tiers = tier_rows([report for report in reports if report is not None])
    rows = [
        _row(observation, report, has_it, _lack(observation, history, zone.meta.name))
        for observation, report, has_it in zip(observations, reports, done, strict=True)
    ]
    return {
        "observedGeneration": zone.meta.generation,
        "conditions": render(conditions, before.get("conditions", []), generation=zone.meta.generation, now=now),
        "message": _message(conditions),
        **ZoneSummary.of(report for report in reports if report is not None).status_fields(),
        **({"tiers": in_tiers} if in_tiers else {}),
        **({"engines": rows} if rows else {}),
        **({"purge": dict(purge)} if purge is not None else {}),
    }


def pool_status(
    pool: Pool,
    plan: Plan,
    observations: Sequence[Observation],
    history: History,
    *,
    size: int | None,
    before: Mapping[str, Any],
    now: str,
    not_written: str = "",
    salt_not_made: str = "",
    token_not_made: str = "",
    unwatched: Sequence[str] = (),
    overlaps: Sequence[Overlap] = (),
) -> dict[str, Any]:
    """Returns the complete status of a pool.

    Args:
        pool: the pool as stored in the API server.
        plan: the plan for the pool's zones.
        observations: one observation for each ready engine of the pool.
        history: the published snapshots.
        size: the engine size that the plan assumes, in blocks; None if unknown.
        before: the pool's status as this operator last computed it, without later changes by other clients.
        now: the time as RFC 3339.
        not_written: why the newest snapshot could not be published; empty if it was published.
        salt_not_made: why the Secret with the pool's salt key can't be created; empty if nothing prevents it.
        token_not_made: why the Secret with the pool's admin token can't be created; empty if nothing prevents it.
        unwatched: names of user-provided Secrets that the pool's pods mount but the operator can't watch.
        overlaps: the overlaps with other pools that select the same pods.
    """
    done = [
        not not_written and observation.report is not None and history.acknowledges_newest(observation.report)
        for observation in observations
    ]
    decisions = plan.decisions.values()
    conditions = pool_conditions(
        pool,
        plan.pool_left_out,
        observations,
        done,
        history,
        not_written,
        salt_not_made,
        token_not_made,
        unwatched,
        overlaps,
    )
    status: dict[str, Any] = {
        "observedGeneration": pool.meta.generation,
        "conditions": render(conditions, before.get("conditions", []), generation=pool.meta.generation, now=now),
        "message": _message(conditions),
        "enginesReady": len(observations),
        "enginesAcknowledged": sum(done),
        "zonesAccepted": sum(decision.accepted for decision in decisions),
        "zonesRejected": sum(not decision.accepted for decision in decisions),
    }
    if history.newest is not None:
        status |= _config_in_force(history, history.newest, size, pool.config)
    elif size is not None:
        status["capacityBlocks"] = size
    return status


def leaving_pool_status(pool: Pool, *, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Returns the complete status of a pool whose deletion waits for a finalizer; see `pool_status`.

    The status has no numbers, because the operator no longer polls the pool's engines.
    """
    return _without_numbers(pool, leaving_pool_conditions(), before, now)


def not_served_status(pool: Pool, why: str, *, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Returns the complete status of a pool that the operator lacks rights for; see `pool_status`.

    Args:
        pool: the pool as stored in the API server.
        why: which right is missing.
        before: the pool's last status.
        now: the time as RFC 3339.
    """
    return _without_numbers(pool, not_served_conditions(why), before, now)


def _without_numbers(
    pool: Pool, conditions: Sequence[Condition], before: Mapping[str, Any], now: str
) -> dict[str, Any]:
    return {
        "observedGeneration": pool.meta.generation,
        "conditions": render(conditions, before.get("conditions", []), generation=pool.meta.generation, now=now),
        "message": _message(conditions),
    }


def _config_in_force(
    history: History, config: RuntimeConfig, size: int | None, declared: PoolConfig | None
) -> dict[str, Any]:
    """Returns a pool's status fields about the newest snapshot: its generation, hash, bytes, blocks and tiers."""
    tiers = NO_TIERS if declared is None else declared.tiers
    budget = Budget(size, tiers)
    for entry in config.zones:
        budget.take(entry)
    status: dict[str, Any] = {
        "configGeneration": config.generation,
        "configHash": config.hash,
        "configBytes": history.newest_bytes,
    }
    if config.zones:
        status["configBytesPerZone"] = history.newest_bytes // len(config.zones)
    if size is not None:
        status |= {
            "capacityBlocks": size,
            "reservedBlocks": budget.reserved,
            "allocatableBlocks": budget.allocatable,
        }
    rows = pool_tier_rows(tiers, budget.tiers)
    return status | ({"tiers": rows} if rows else {})


def without_gauges(status: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of a zone's status without amounts. The operator writes changes of this part immediately."""
    stable = {key: value for key, value in status.items() if key not in (*STATUS_FIELDS, "tiers")}
    stable["engines"] = [
        {key: value for key, value in row.items() if key not in STATUS_FIELDS} for row in status.get("engines", [])
    ]
    return stable


def _message(conditions: Sequence[Condition]) -> str:
    return next(condition.message for condition in conditions if condition.type == Type.READY)


def _lack(seen: Observation, history: History, zone: str) -> str:
    """Returns a text that says why an engine does not grant a zone's reservation; empty if the engine grants it."""
    lacks = history.lacks(seen, zone)
    return (history.contradiction(seen, zone) or f"lacks the {lacks} blocks that the zone reserves") if lacks else ""


def _row(observation: Observation, report: ZoneView | None, acknowledged: bool, lack: str) -> dict[str, Any]:
    """Returns an engine's row in a zone's status. Without a report, the row has no numbers: old ones would mislead."""
    row: dict[str, Any] = {"pod": observation.pod, "acknowledged": acknowledged}
    if report is not None:
        row |= {
            "appliedGeneration": report.generation,
            "reserved": report.reserved,
            "limit": report.limit,
            **ZoneSummary.of([report]).status_fields(),
        }
    if message := observation.error or observation.nack or lack:
        row["message"] = message
    return row

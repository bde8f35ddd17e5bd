"""What goes into the status of zones and pools. Pure."""

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import not_
from typing import Any

from tenantzone_contract.config import RuntimeConfig, ZoneConfig
from tenantzone_operator.acknowledgement import History, Observation, difference, programmed
from tenantzone_operator.admission import Budget, Verdict
from tenantzone_operator.conditions import Condition, Reason, Type, degraded, not_enforced, render, stalled
from tenantzone_operator.plan import Plan
from tenantzone_operator.reports import MAX_COUNT
from tenantzone_operator.resources import Pool, Zone
from tenantzone_operator.views import ZoneView

_NO_PODS = "no ready pod matches spec.selector"
_STATES = ("Active", "Idle", "Evicted")
_GAUGES = frozenset({"state", "held", "inUse", "cached", "lent", "borrowed", "hitPercent", "evictions"})
"""What moves with each request; it is written less often than the rest."""


class ZoneStatuses:
    """The statuses of a pool's zones, remembered: of thousands of zones most are as they were."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Zone, tuple[object, ...], dict[str, Any]]] = {}

    def make(
        self,
        zones: Sequence[Zone],
        verdicts: Mapping[str, Verdict],
        observations: Sequence[Observation],
        history: History,
        *,
        now: str,
        not_written: str = "",
    ) -> dict[str, dict[str, Any]]:
        """By name; so are the verdicts. For the other arguments, see `zone_status`."""
        engines = [(seen.pod, seen.error, seen.nack) for seen in observations]
        made = {}
        for zone in zones:
            name, verdict = zone.meta.name, verdicts[zone.meta.name]
            reports = [seen.zones.get(name) for seen in observations]
            unfit = [(history.lacks(seen, name), history.is_unfit(seen, name)) for seen in observations]
            causes = (verdict, reports, _acknowledged(verdict, observations, history), unfit, engines, not_written)
            known = self._made.get(name)
            if known is None or known[0] is not zone or known[1] != causes:
                before = known[2] if known is not None and known[0].meta.uid == zone.meta.uid else zone.status
                status = zone_status(
                    zone, verdict, observations, history, before=before, now=now, not_written=not_written
                )
                known = zone, causes, status
            made[name] = known
        self._made = made
        return {name: status for name, (_, _, status) in made.items()}


def zone_status(
    zone: Zone,
    verdict: Verdict,
    observations: Sequence[Observation],
    history: History,
    *,
    before: Mapping[str, Any],
    now: str,
    not_written: str = "",
) -> dict[str, Any]:
    """The whole status of a zone.

    Args:
        zone: as the API server has it.
        verdict: whether it is part of the newest snapshot.
        observations: one for each ready engine of the pool.
        history: the snapshots that were given out.
        before: its status until now: as it was made here, whatever somebody wrote since.
        now: RFC 3339.
        not_written: why the newest snapshot could not be given out; empty if it was.
    """
    reports = [observation.zones.get(zone.meta.name) for observation in observations]
    acknowledged = _acknowledged(verdict, observations, history)
    conditions = _zone_conditions(zone, verdict, observations, acknowledged, history, not_written)
    rows = [
        _row(observation, report, done, history.lacks(observation, zone.meta.name))
        for observation, report, done in zip(observations, reports, acknowledged, strict=True)
    ]
    return {
        "observedGeneration": zone.meta.generation,
        "conditions": render(conditions, before.get("conditions", []), generation=zone.meta.generation, now=now),
        "message": _message(conditions),
        **_gauges([report for report in reports if report is not None]),
        **({"engines": rows} if rows else {}),
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
) -> dict[str, Any]:
    """The whole status of a pool.

    Args:
        pool: as the API server has it.
        plan: for its zones.
        observations: one for each ready engine of the pool.
        history: the snapshots that were given out.
        size: blocks of the engines that it is planned for; None if nothing is known of them.
        before: its status until now: as it was made here, whatever somebody wrote since.
        now: RFC 3339.
        not_written: why the newest snapshot could not be given out; empty if it was.
    """
    acknowledged = [
        not not_written and observation.report is not None and history.acknowledges_newest(observation.report)
        for observation in observations
    ]
    verdicts = plan.verdicts.values()
    conditions = _pool_conditions(pool, observations, acknowledged, history, not_written)
    status: dict[str, Any] = {
        "observedGeneration": pool.meta.generation,
        "conditions": render(conditions, before.get("conditions", []), generation=pool.meta.generation, now=now),
        "message": _message(conditions),
        "enginesReady": len(observations),
        "enginesAcknowledged": sum(acknowledged),
        "zonesAccepted": sum(verdict.accepted for verdict in verdicts),
        "zonesRejected": sum(not verdict.accepted for verdict in verdicts),
    }
    if history.newest is not None:
        status |= _config_in_force(history, history.newest, size)
    elif size is not None:
        status["capacityBlocks"] = size
    return status


def _config_in_force(history: History, config: RuntimeConfig, size: int | None) -> dict[str, Any]:
    """What the snapshot comes to, in bytes and in blocks."""
    status: dict[str, Any] = {
        "configGeneration": config.generation,
        "configHash": config.hash,
        "configBytes": history.newest_bytes,
    }
    if config.zones:
        status["configBytesPerZone"] = history.newest_bytes // len(config.zones)
    if size is not None:
        budget = Budget(size)
        for entry in config.zones:
            budget.take(entry, 0)
        status |= {
            "capacityBlocks": size,
            "reservedBlocks": budget.reserved,
            "allocatableBlocks": budget.allocatable,
        }
    return status


def without_gauges(status: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a zone's status that is written at once when it changes."""
    stable = {key: value for key, value in status.items() if key not in _GAUGES}
    stable["engines"] = [
        {key: value for key, value in row.items() if key not in _GAUGES} for row in status.get("engines", [])
    ]
    return stable


def _acknowledged(verdict: Verdict, observations: Sequence[Observation], history: History) -> list[bool]:
    """For each engine, whether it enforces the zone as its spec wants it, and reports it so."""
    entry = verdict.entry if verdict.accepted else None
    return [
        entry is not None and history.acknowledged_by(seen, entry) and not _differs(seen, entry, history)
        for seen in observations
    ]


def _differs(seen: Observation, entry: ZoneConfig, history: History) -> str:
    """In what an engine that has acknowledged an entry shows it otherwise; empty: in nothing."""
    assert seen.report is not None, "it has acknowledged"
    return difference(seen, entry, history.grants(seen.report.capacity_blocks)[entry.name])


def _zone_conditions(
    zone: Zone,
    verdict: Verdict,
    observations: Sequence[Observation],
    acknowledged: Sequence[bool],
    history: History,
    not_written: str,
) -> list[Condition]:
    accepted = Condition(Type.ACCEPTED, "True" if verdict.accepted else "False", verdict.reason, verdict.message)
    unfit = [history.is_unfit(seen, zone.meta.name) for seen in observations]
    if verdict.accepted and observations and all(unfit):
        message = f"no engine is large enough: {_lack(observations[0], history, zone.meta.name)}"
        engines = Condition(Type.PROGRAMMED, "False", Reason.ENGINE_UNFIT, message)
    elif verdict.accepted:
        engines = programmed(
            list(compress(observations, map(not_, unfit))),
            list(compress(acknowledged, map(not_, unfit))),
            f"no ready pod matches the selector of ZonePool {zone.pool}; the zone is enforced when one does",
            not_written,
        )
        if engines.reason == Reason.PENDING:
            engines = _difference(verdict, observations, history) or engines
    else:
        engines = Condition(Type.PROGRAMMED, "False", Reason.NOT_ACCEPTED, "the engines do not get this generation")
    lacking = [_lack(seen, history, zone.meta.name) for seen in compress(observations, unfit) if verdict.accepted]
    return [accepted, engines, _ready(accepted, engines), *stalled(accepted), *degraded(lacking)]


def _lack(seen: Observation, history: History, zone: str) -> str:
    """What an engine is too small for, of one zone, or of all if it refuses the config for it."""
    assert seen.report is not None, "its size is known"
    lacks, blocks = history.lacks(seen, zone), seen.report.capacity_blocks
    if lacks:
        return f"{seen.pod} has {blocks} blocks and lacks the zone's {lacks}"
    return f"{seen.pod} has {blocks} blocks, lacks {history.lacking(seen)} and refuses the config: {seen.nack}"


def _difference(verdict: Verdict, observations: Sequence[Observation], history: History) -> Condition | None:
    """What the first engine that has the config, and not the zone as it is there, shows of it; None: there is none."""
    entry = verdict.entry
    for seen in observations:
        if entry is not None and history.acknowledged_by(seen, entry) and (found := _differs(seen, entry, history)):
            reason = Reason.ZONE_DIFFERS if entry.name in seen.zones else Reason.ZONE_MISSING
            return Condition(Type.PROGRAMMED, "False", reason, f"{seen.pod} has the config but {found}")
    return None


def _pool_conditions(
    pool: Pool,
    observations: Sequence[Observation],
    acknowledged: Sequence[bool],
    history: History,
    not_written: str,
) -> list[Condition]:
    if pool.config is None:
        accepted = Condition(Type.ACCEPTED, "False", Reason.INVALID, pool.invalid)
    else:
        accepted = Condition(Type.ACCEPTED, "True", Reason.ACCEPTED, "valid")
    # One that holds what fits has acknowledged like any other; one that refuses all of it is waited for by nobody.
    waited_for = [not (seen.nack and history.lacking(seen)) for seen in observations]
    engines = programmed(
        list(compress(observations, waited_for)),
        list(compress(acknowledged, waited_for)),
        "no ready pod that spec.selector matches has room for its zones" if observations else _NO_PODS,
        not_written,
    )
    unfit = [
        f"{seen.pod} has {seen.report.capacity_blocks} blocks and lacks {lacks} of what zones reserve"
        for seen in observations
        if seen.report is not None and (lacks := history.lacking(seen))
    ]
    return [
        accepted,
        engines,
        _ready(accepted, engines),
        *stalled(accepted),
        *degraded(unfit),
        *not_enforced(pool.not_enforced),
    ]


def _ready(accepted: Condition, engines: Condition) -> Condition:
    if accepted.status != "True":
        return Condition(Type.READY, "False", Reason.NOT_ACCEPTED, accepted.message)
    if engines.status != "True":
        return Condition(Type.READY, engines.status, engines.reason, engines.message)
    return Condition(Type.READY, "True", Reason.ENFORCED, f"enforced; {engines.message}")


def _message(conditions: Sequence[Condition]) -> str:
    return next(condition.message for condition in conditions if condition.type == Type.READY)


def _row(observation: Observation, report: ZoneView | None, acknowledged: bool, lacks: int) -> dict[str, Any]:
    """An engine that does not answer shows nothing but that: old numbers would pass for new ones."""
    row: dict[str, Any] = {"pod": observation.pod, "acknowledged": acknowledged}
    if report is not None:
        row |= {
            "appliedGeneration": report.generation,
            "reserved": report.reserved,
            "limit": report.limit,
            **_gauges([report]),
        }
    too_small = f"too small for the zone's {lacks} blocks" if lacks else ""
    if message := observation.error or observation.nack or too_small:
        row["message"] = message
    return row


def _gauges(reports: Sequence[ZoneView]) -> dict[str, Any]:
    """The amounts over some engines; nothing if there is none that answers."""
    if not reports:
        return {}
    asked = sum(report.prefix_query_tokens for report in reports)
    gauges: dict[str, Any] = {
        "state": min((report.state for report in reports), key=_STATES.index),
        "held": sum(report.held for report in reports),
        "inUse": sum(report.in_use for report in reports),
        "cached": sum(report.cached for report in reports),
        "lent": sum(report.lent for report in reports),
        "borrowed": sum(report.borrowed for report in reports),
        "evictions": min(sum(report.evicted for report in reports), MAX_COUNT),
    }
    if asked:
        gauges["hitPercent"] = min(100, 100 * sum(report.prefix_hit_tokens for report in reports) // asked)
    return gauges

"""Pure functions for the status record and the condition about the purge that a zone's annotation requests."""

from collections.abc import Mapping, Sequence
from typing import Any

from tenantzone_contract.zone_config.config import PURGE_ANNOTATION
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.conditions import Condition, Reason, Type, name_some
from tenantzone_operator.kube.resources import Zone
from tenantzone_operator.planning.admission import AdmissionDecision

Record = Mapping[str, Any]
"""Content of ``status.purge``: the purge's id, its request and completion times, and its result in each engine."""


def purge_record(
    zone: Zone, decision: AdmissionDecision, observations: Sequence[Observation], before: Mapping[str, Any], now: str
) -> Record | None:
    """Returns the record of the zone's last purge; None if the zone was never purged.

    An engine's acknowledgement stays in the record even if the engine stops answering. A complete record never changes.

    Args:
        zone: the zone as stored in the API server.
        decision: the decision on the zone, with its entry in the newest snapshot.
        observations: one observation for each ready engine of the pool.
        before: the zone's previous status.
        now: the time as RFC 3339.
    """
    last, wanted = before.get("purge"), _wanted(zone)
    if last is not None and "completedAt" in last and wanted in ("", last["id"]):
        return dict(last)
    if not wanted:
        return None
    is_known = last is not None and last["id"] == wanted
    rows = {row["pod"]: row for row in last.get("engines", ())} if last is not None and is_known else {}
    for seen in observations:
        if seen.pod not in rows and (row := _acknowledged(zone, seen, wanted)) is not None:
            rows[seen.pod] = row
    record: dict[str, Any] = {
        "id": wanted,
        "requestedAt": last["requestedAt"] if last is not None and is_known else now,
        "evicted": sum(row["evicted"] for row in rows.values()),
        "withdrawn": sum(row["withdrawn"] for row in rows.values()),
        "unscrubbed": sum(row["unscrubbed"] for row in rows.values()),
    }
    if rows:
        record["engines"] = [rows[pod] for pod in sorted(rows)]
    is_wanted = decision.entry is not None and decision.entry.purge == wanted
    if is_wanted and observations and all(seen.pod in rows for seen in observations):
        record["completedAt"] = now
    return record


def purged(
    zone: Zone,
    decision: AdmissionDecision,
    observations: Sequence[Observation],
    record: Record | None,
    not_written: str,
) -> list[Condition]:
    """Returns a list with the condition about the requested purge; an empty list if no purge is requested."""
    if zone.purge_invalid:
        message = (
            f"the annotation {PURGE_ANNOTATION} is not a valid purge id, so nothing is purged: {zone.purge_invalid}; "
            "set it to 1 to 63 letters, digits, -, _ and ., or run kubectl tenantzone purge"
        )
        return [Condition(Type.PURGED, "False", Reason.PURGE_INVALID, message)]
    if record is None or record["id"] != _wanted(zone):
        return []
    rows = record.get("engines", ())
    if "completedAt" in record:
        message = (
            f"purge {record['id']} was carried out in {_engines(len(rows))}: {record['evicted']} blocks evicted, "
            f"{record['withdrawn']} withdrawn while requests used them"
        )
        return [Condition(Type.PURGED, "True", Reason.PURGED, message)]
    waiting = f"purge {record['id']} is acknowledged by {len(rows)} of {_engines(max(len(rows), len(observations)))}"
    return [
        Condition(
            Type.PURGED, "False", Reason.PURGE_PENDING, f"{waiting}; {_why(decision, observations, rows, not_written)}"
        )
    ]


def _wanted(zone: Zone) -> str:
    return zone.config.purge if zone.config is not None else ""


def _acknowledged(zone: Zone, seen: Observation, wanted: str) -> dict[str, Any] | None:
    found = seen.zones.get(zone.meta.name)
    if found is None or found.purge is None or found.purge.id != wanted:
        return None
    purge = found.purge
    return {
        "pod": seen.pod,
        "evicted": purge.evicted,
        "withdrawn": purge.withdrawn,
        "unscrubbed": min(found.unscrubbed, purge.evicted),
    }


def _why(
    decision: AdmissionDecision,
    observations: Sequence[Observation],
    rows: Sequence[Mapping[str, Any]],
    not_written: str,
) -> str:
    """Returns why the purge is not complete, with the names of the engines that have not acknowledged it."""
    if not decision.accepted:
        return f"the engines do not get the purge, because the zone is not accepted: {decision.message}"
    if not_written:
        return f"the pool's config can't be written, retrying: {not_written}"
    if not observations:
        return "no engine is ready"
    done = {row["pod"] for row in rows}
    left = [seen for seen in observations if seen.pod not in done]
    return f"waiting for {name_some([_with_trouble(seen) for seen in left], '; ')}"


def _with_trouble(seen: Observation) -> str:
    if seen.nack:
        return f"{seen.pod}, which refuses the config: {seen.nack}"
    return f"{seen.pod}, which does not answer: {seen.error}" if seen.report is None else seen.pod


def _engines(count: int) -> str:
    return f"{count} engine{'' if count == 1 else 's'}"

"""Pure functions that compute the statuses of KVStorages and KVCacheGroups from the manager's reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tenantzone_contract.quantity import shown_bytes
from tenantzone_contract.text import printable
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.cache_manager.answers import LONGEST_MESSAGE
from tenantzone_operator.cache_manager.declared import Declared, DeclaredGroup, DeclaredStorage
from tenantzone_operator.kube.conditions import Condition, Reason, Type, name_some, render

GAUGES: Final = ("held", "summary", "types", "zones", "instances", "evictedBlocks", "evictedBytes")
"""Names of status fields that change all the time. The operator limits the rate of writes that change only these."""
_STALLING: Final = (Reason.INVALID, Reason.MANAGER_REFUSED)


@dataclass(frozen=True, slots=True)
class Found:
    """What the operator found out about one object from its last calls to the manager."""

    unreachable: str = ""
    """Why the manager does not answer; empty if the manager answers."""
    refused: str = ""
    """Why the object is refused; empty without a refusal."""
    reason: Reason = Reason.MANAGER_REFUSED
    """Reason of the condition if the object is refused."""
    leaving: str = ""
    """What a deleted object waits for, as the words after "waiting until"; empty if it does not wait."""
    report: Body | None = None
    """The manager's report on the object; None if the manager does not have the object."""


def storage_status(storage: DeclaredStorage, found: Found, *, now: str) -> Body:
    """Returns the status that a KVStorage should have."""
    registered = _registered(storage, found)
    healthy = _healthy(found)
    ready = _first_problem([registered, healthy])
    if ready is None and storage.wanted.get("enabled") is False:
        message = "spec.enabled is false, so nothing is read or written here"
        ready = Condition(Type.READY, "False", Reason.DISABLED, message)
    figures: dict[str, Any] = {"place": storage.place}
    if found.report is not None:
        held = found.report.get("used", 0)
        figures |= {"held": held, "summary": _summary(held, storage.wanted.get("limit"))}
    else:
        figures |= _kept(storage)
    return _status(storage, [registered, healthy, *_place_shared(found)], ready, figures, now)


def group_status(
    group: DeclaredGroup,
    found: Found,
    namespaces: Sequence[Mapping[str, str]],
    usable: int,
    zones: Sequence[Mapping[str, Any]] = (),
    *,
    now: str,
) -> Body:
    """Returns the status that a KVCacheGroup should have.

    Args:
        group: the declared group.
        found: the result of the last calls to the manager.
        namespaces: one row for each inspected namespace. A row's message, if any, says why pools or zones in this
            namespace can't use the group.
        usable: the number of the group's storages that can be used now.
        zones: rows with the bytes that each zone of the group stores and reserves, one row for each storage type.
        now: the time as RFC 3339.
    """
    registered = _registered(group, found)
    resolved = _resolved(group, namespaces)
    ready = _first_problem([registered, resolved])
    if ready is None and found.unreachable:
        ready = Condition(Type.READY, "Unknown", Reason.MANAGER_UNREACHABLE, found.unreachable)
    elif ready is None and not usable:
        message = f"no storage of the group can be used: {name_some(group.storages)}; see the KVStorages' conditions"
        ready = Condition(Type.READY, "False", Reason.NO_STORAGE, message)
    figures = _group_figures(group, found.report, zones) if found.report is not None else _kept(group)
    looked_at = {"namespaces": [dict(row) for row in namespaces]} if namespaces else {}
    return _status(group, [registered, resolved], ready, looked_at | figures, now)


def is_refused(status: Body) -> bool:
    """Returns whether a status says that the manager refuses the declared object."""
    return any(each["reason"] == Reason.MANAGER_REFUSED for each in status["conditions"])


def without_gauges(status: Body) -> Body:
    """Returns a status without the fields that change all the time."""
    return {name: value for name, value in status.items() if name not in GAUGES}


def _group_figures(group: DeclaredGroup, report: Body, zones: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    held, limit = report["total"].get("used", 0), (group.wanted.get("total") or {}).get("limit")
    limits: Mapping[str, Body] = group.wanted.get("types") or {}
    used = {kind: usage.get("used", 0) for kind, usage in (report.get("types") or {}).items()}
    types = [
        {
            "type": kind,
            "held": used.get(kind, 0),
            "summary": _summary(used.get(kind, 0), limits.get(kind, {}).get("limit")),
        }
        for kind in sorted(used.keys() | limits.keys())
    ]
    return {
        "held": held,
        "summary": _summary(held, limit),
        "types": types,
        **({"zones": [{**row, "summary": _summary(row["held"], row["reserved"])} for row in zones]} if zones else {}),
        "instances": report.get("instances", 0),
        "evictedBlocks": report.get("evicted_blocks", 0),
        "evictedBytes": report.get("evicted_bytes", 0),
    }


def _registered(declared: Declared, found: Found) -> Condition:
    kind = Type.REGISTERED
    if declared.meta.deleting:
        what = f"waiting until {found.leaving}" if found.leaving else found.unreachable
        return Condition(kind, "False", Reason.DELETING, f"the object is being deleted; {what}")
    if declared.invalid:
        return Condition(kind, "False", Reason.INVALID, declared.invalid)
    if found.unreachable:
        before = _before(declared, kind)
        if before is not None and before.get("observedGeneration") == declared.meta.generation:
            # Keep the condition, because an unreachable manager keeps its registrations.
            return Condition(kind, before["status"], Reason(before["reason"]), before["message"])
        return Condition(kind, "Unknown", Reason.MANAGER_UNREACHABLE, found.unreachable)
    if found.refused:
        return Condition(kind, "False", found.reason, found.refused)
    return Condition(kind, "True", Reason.REGISTERED, "the KV-cache manager has registered the current spec")


def _healthy(found: Found) -> Condition:
    kind = Type.HEALTHY
    if found.unreachable:
        return Condition(kind, "Unknown", Reason.MANAGER_UNREACHABLE, found.unreachable)
    if found.report is None:
        return Condition(
            kind, "Unknown", Reason.NOT_REGISTERED, "the KV-cache manager has not registered this storage yet"
        )
    if problem := found.report.get("problem"):
        return Condition(kind, "False", Reason.UNHEALTHY, printable(problem, LONGEST_MESSAGE))
    return Condition(kind, "True", Reason.HEALTHY, "the KV-cache manager's last access to this storage succeeded")


def _place_shared(found: Found) -> list[Condition]:
    """Returns a list with the condition about other storages at the same location; empty if there are none."""
    others = found.report.get("shares_place_with", ()) if found.report is not None else ()
    if not others:
        return []
    message = (
        f"this storage names the same location as {name_some(list(others))}; only the storage that used the location "
        "first can be used. Give each storage its own location, or delete the others"
    )
    return [Condition(Type.PLACE_SHARED, "True", Reason.PLACE_NAMED_TWICE, printable(message, LONGEST_MESSAGE))]


def _resolved(group: DeclaredGroup, namespaces: Sequence[Mapping[str, str]]) -> Condition:
    kind = Type.POOLS_RESOLVED
    said = {row["namespace"]: row.get("message", "") for row in namespaces}
    unseen = "no operator that watches the namespace {} has resolved its pools and zones there"
    unresolved = [line for each in group.namespaces if (line := said.get(each, unseen.format(each)))]
    if unresolved:
        return Condition(kind, "False", Reason.POOLS_UNRESOLVED, name_some(unresolved, "; "))
    if not group.pools and not group.zones:
        return Condition(kind, "True", Reason.NO_POOLS, "the group names no pools or zones, so no engine can use it")
    return Condition(kind, "True", Reason.RESOLVED, "all pools and zones exist, and their service accounts are known")


def _first_problem(conditions: Sequence[Condition]) -> Condition | None:
    """Returns a Ready condition like the first condition that is False, or else like the first that is Unknown.

    Returns None if all conditions are True.
    """
    for each in sorted(conditions, key=lambda one: one.status == "Unknown"):
        if each.status != "True":
            return replace(each, type=Type.READY)
    return None


def _status(
    declared: Declared, conditions: list[Condition], ready: Condition | None, figures: Mapping[str, Any], now: str
) -> Body:
    if ready is None:
        ready = Condition(Type.READY, "True", Reason.READY, "ready for use")
    stalled = [replace(ready, type=Type.STALLED, status="True")] if ready.reason in _STALLING else []
    previous = declared.status.get("conditions", [])
    rendered = render([*conditions, ready, *stalled], previous, generation=declared.meta.generation, now=now)
    return {
        "observedGeneration": declared.meta.generation,
        "conditions": rendered,
        "message": ready.message,
        **figures,
    }


def _kept(declared: Declared) -> dict[str, Any]:
    """Returns the figures from the last status, because an unreachable manager keeps its blocks."""
    return {name: declared.status[name] for name in GAUGES if name in declared.status}


def _before(declared: Declared, kind: Type) -> Body | None:
    return next((each for each in declared.status.get("conditions", []) if each["type"] == kind), None)


def _summary(held: int, limit: int | None) -> str:
    return shown_bytes(held) if limit is None else f"{shown_bytes(held)}/{shown_bytes(limit)}"

"""Derives Events from status changes of zones and pools, one Event for each change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.conditions import Reason, Type

Status = Mapping[str, Any]


class Notable(StrEnum):
    """Reasons of the Events that the operator writes."""

    ZONE_EVICTED = "ZoneEvicted"
    LOAN_RECLAIMED = "LoanReclaimed"
    OVERCOMMITTED = "Overcommitted"
    CONFIG_TOO_LARGE = "ConfigTooLarge"
    INVALID = "Invalid"
    TENANT_CONFLICT = "TenantConflict"
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_INVALID = "PoolInvalid"
    CONFIG_REJECTED = "ConfigRejected"
    CONFIG_UNTRUSTED = "ConfigUntrusted"
    PURGED = "Purged"
    PURGE_INVALID = "PurgeInvalid"
    TRIED = "Tried"
    KEPT = "Kept"
    UNDONE = "Undone"
    REGISTERED = "Registered"
    NOT_REGISTERED = "NotRegistered"
    STORAGE_UNHEALTHY = "StorageUnhealthy"
    STORAGE_HEALTHY = "StorageHealthy"


@dataclass(frozen=True, slots=True)
class Notice:
    """Content of an Event about a zone or pool."""

    reason: Notable
    action: str
    """Machine-readable action of the operator or an engine, in CamelCase."""
    type: Literal["Normal", "Warning"]
    note: str
    """Text for people, without numbers that change, because Events with equal notes form one series."""


_REFUSALS = {
    Reason.POOL_OVERCOMMITTED: Notable.OVERCOMMITTED,
    Reason.CONFIG_TOO_LARGE: Notable.CONFIG_TOO_LARGE,
    Reason.INVALID: Notable.INVALID,
    Reason.TENANT_CONFLICT: Notable.TENANT_CONFLICT,
    Reason.POOL_NOT_FOUND: Notable.POOL_NOT_FOUND,
    Reason.POOL_INVALID: Notable.POOL_INVALID,
}
"""Event reason for each condition reason of a refused zone. A zone that is being deleted causes no Event."""

_REFUSED_CONFIGS = {
    Reason.CONFIG_REJECTED: Notable.CONFIG_REJECTED,
    Reason.CONFIG_UNTRUSTED: Notable.CONFIG_UNTRUSTED,
}
"""Event reason for each condition reason of a refused config."""


def zone_notices(before: Status, after: Status) -> list[Notice]:
    """Returns the Events to record about a TenantZone whose status has changed."""
    notices = []
    is_new = before.get("observedGeneration") != after.get("observedGeneration")
    was, now = _condition(before, Type.ACCEPTED), _condition(after, Type.ACCEPTED)
    if now.get("reason") in _REFUSALS and (is_new or now["reason"] != was.get("reason")):
        # Compare only reasons, because a change of another zone may change the message.
        notices.append(Notice(_REFUSALS[now["reason"]], "Refuse", "Warning", now["message"]))
    has_lost = after.get("evictions", 0) > before.get("evictions", 0)
    if before.get("state") in ("Active", "Idle") and after.get("state") == "Evicted" and has_lost:
        note = "every engine has evicted all cached blocks of the zone; the zone remains, but its next request is cold"
        notices.append(Notice(Notable.ZONE_EVICTED, "Evict", "Normal", note))
    purge, refusal = after.get("purge", {}), _condition(after, Type.PURGED)
    if "completedAt" in purge and purge != before.get("purge"):
        note = f"purge {purge['id']}: every engine has evicted the zone's cached blocks; see the counts in status.purge"
        notices.append(Notice(Notable.PURGED, "Purge", "Normal", note))
    if refusal.get("reason") == Reason.PURGE_INVALID and refusal["message"] != _condition(before, Type.PURGED).get(
        "message"
    ):
        notices.append(Notice(Notable.PURGE_INVALID, "Refuse", "Warning", refusal["message"]))
    return notices


def pool_notices(before: Status, after: Status) -> list[Notice]:
    """Returns the Events to record about a ZonePool whose status has changed."""
    return [*_rejected(before, after), *_adjusted(before, after)]


def _rejected(before: Status, after: Status) -> list[Notice]:
    was, now = _condition(before, Type.PROGRAMMED), _condition(after, Type.PROGRAMMED)
    if now.get("reason") not in _REFUSED_CONFIGS:
        return []
    if was.get("reason") == now["reason"] and was["message"] == now["message"]:
        return []
    return [Notice(_REFUSED_CONFIGS[now["reason"]], "Program", "Warning", now["message"])]


_ADJUSTED = {
    "Trial": (Notable.TRIED, "Try"),
    "Kept": (Notable.KEPT, "Keep"),
    "Undone": (Notable.UNDONE, "Undo"),
}


def _adjusted(before: Status, after: Status) -> list[Notice]:
    """Returns the Events about values that the advisor has tried, kept or undone."""
    known = before.get("adjustments", [])
    found = []
    for row in after.get("adjustments", []):
        if row not in known and row["state"] in _ADJUSTED:
            reason, action = _ADJUSTED[row["state"]]
            what = f"{row['field']}{' of ' + row['zone'] if 'zone' in row else ''}"
            note = f"{what} {row['value']} instead of {row.get('spec', 'nothing')}: {row.get('message', '')}"
            found.append(Notice(reason, action, "Normal", note))
    return found


class Reclaims:
    """Detects reclaims of borrowed blocks from the engines' counters."""

    def __init__(self) -> None:
        self._counted: dict[str, dict[str, int]] = {}

    def look(self, observations: Sequence[Observation]) -> dict[str, Notice]:
        """Returns a notice for each zone that lost borrowed blocks since the previous call, by zone name."""
        lost: dict[str, list[str]] = {}
        counted = {}
        for seen in observations:
            before = self._counted.get(seen.pod)
            now = {name: zone.taken_back for name, zone in seen.zones.items() if zone.taken_back}
            if seen.report is not None:
                counted[seen.pod] = now
            elif before is not None:
                counted[seen.pod] = before
            if before is not None:
                # A restarted engine counts from zero, so a lower count does not mean a reclaim.
                for name in (name for name, blocks in now.items() if blocks > before.get(name, 0)):
                    lost.setdefault(name, []).append(seen.pod)
        self._counted = counted
        return {name: _reclaim(pods) for name, pods in lost.items()}


def _reclaim(pods: Iterable[str]) -> Notice:
    note = f"blocks that the zone borrowed were reclaimed in {', '.join(pods)}: the lender needs them or the loan ended"
    return Notice(Notable.LOAN_RECLAIMED, "Reclaim", "Normal", note)


def _condition(status: Status, kind: Type) -> Mapping[str, Any]:
    return next((found for found in status.get("conditions", []) if found["type"] == kind), {})

"""Records which zones and pools were added or deleted, or changed their status, since this process began to watch.

The changes are derived from the store, so standby replicas record them too, and users need no right to read Events.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.conditions import Type
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.kube.store import Key
from tenantzone_operator.status.notices import Notice, pool_notices, zone_notices

MAX_CHANGES = 500
_LOOK_BACK = 20
"""Number of recent entries with which a new change is compared. If one is equal, only its count is raised."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one TenantZone or ZonePool, as the console shows it."""

    unix_time: float
    kind: Literal["TenantZone", "ZonePool"]
    pool: Key
    name: str
    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    count: int = 1


class Changes:
    """The newest changes of all zones and pools, found by comparing the store with its previous sample.

    Args:
        now: returns the Unix time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._known: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._zones: dict[Key, Zone] | None = None
        self._pools: dict[Key, Pool] | None = None

    def of(self, pool: Key, max_changes: int) -> list[Change]:
        """Returns the newest changes of a pool and its zones, newest first."""
        return [change for change in reversed(self._known) if change.pool == pool][:max_changes]

    def look(self, zones: Iterable[Zone], pools: Iterable[Pool]) -> None:
        """Record how the zones and pools differ from those in the previous call. The first call records nothing."""
        now_zones = {(zone.meta.namespace, zone.meta.name): zone for zone in zones}
        now_pools = {(pool.meta.namespace, pool.meta.name): pool for pool in pools}
        if self._zones is not None and self._pools is not None:
            self._compare_zones(self._zones, now_zones)
            self._compare_pools(self._pools, now_pools)
        self._zones, self._pools = now_zones, now_pools

    def _compare_zones(self, before: dict[Key, Zone], now: dict[Key, Zone]) -> None:
        for key, zone in now.items():
            known = before.get(key)
            # Skip unchanged objects, because a listing delivers all objects again.
            if known is not None and known.meta.version == zone.meta.version:
                continue
            if known is None or known.meta.uid != zone.meta.uid:
                self._note_zone(zone, "Normal", "Declared", f"generation {zone.meta.generation}")
                continue
            if known.meta.generation != zone.meta.generation:
                self._note_zone(zone, "Normal", "Changed", f"generation {zone.meta.generation}")
            for notice in zone_notices(known.status, zone.status):
                self._note_zone(zone, notice.type, notice.reason.value, notice.note)
            for change in _readiness(known.status, zone.status):
                self._note_zone(zone, *change)
        for key in before.keys() - now.keys():
            self._note_zone(before[key], "Normal", "Deleted", "")

    def _compare_pools(self, before: dict[Key, Pool], now: dict[Key, Pool]) -> None:
        for key, pool in now.items():
            known = before.get(key)
            if known is None or known.meta.version == pool.meta.version:
                continue
            for notice in pool_notices(known.status, pool.status):
                self._note_pool(pool, notice)
            was, is_now = known.status.get("enginesReady", 0), pool.status.get("enginesReady", 0)
            if was != is_now:
                kind: Literal["Normal", "Warning"] = "Normal" if is_now > was else "Warning"
                self._note(
                    Change(0.0, "ZonePool", key, pool.meta.name, kind, "Engines", f"{is_now} ready, previously {was}")
                )

    def _note_zone(self, zone: Zone, kind: Literal["Normal", "Warning"], reason: str, note: str) -> None:
        pool = (zone.meta.namespace, zone.pool)
        self._note(Change(0.0, "TenantZone", pool, zone.meta.name, kind, reason, note))

    def _note_pool(self, pool: Pool, notice: Notice) -> None:
        key = (pool.meta.namespace, pool.meta.name)
        self._note(Change(0.0, "ZonePool", key, pool.meta.name, notice.type, notice.reason.value, notice.note))

    def _note(self, change: Change) -> None:
        recent = list(self._known)[-_LOOK_BACK:]
        for known in recent:
            if replace(known, unix_time=0.0, count=1) == change:
                self._known.remove(known)
                change = replace(change, count=known.count + 1)
                break
        self._known.append(replace(change, unix_time=self._now()))


def _readiness(before: Body, after: Body) -> list[tuple[Literal["Normal", "Warning"], str, str]]:
    """Returns the change of readiness between two statuses as type, reason and note; empty without a change."""
    was, is_now = condition_of(before, Type.READY), condition_of(after, Type.READY)
    if not is_now or was.get("status") == is_now["status"]:
        return []
    if is_now["status"] == "True":
        return [("Normal", "Ready", is_now["message"])]
    return [("Warning", "NotReady", f"{is_now['reason']}: {is_now['message']}")] if was else []


def condition_of(status: Body, kind: Type) -> Body:
    """Returns the status's condition of the given type, or an empty condition if there is none."""
    return next((found for found in status.get("conditions", []) if found["type"] == kind), {})

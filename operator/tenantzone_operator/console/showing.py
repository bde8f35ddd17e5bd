"""What the console shows, as JSON, with amounts in blocks unless the name says otherwise; pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from tenantzone_contract.text import printable
from tenantzone_operator.console.changes import Change, ready_condition
from tenantzone_operator.console.lookout import EngineLook, Telling, ZoneLook, declared
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.kube.store import Key, Store, View

MAX_ZONES = 100
"""Shown at once; a filter finds the others."""
_MAX_NAMES = 1000
"""Zones that are told apart by colour and mark, in the order of names."""
_STATES = ("Active", "Idle", "Evicted")
_POOL_FIGURES = (
    "capacityBlocks",
    "reservedBlocks",
    "allocatableBlocks",
    "enginesReady",
    "enginesAcknowledged",
    "zonesAccepted",
    "zonesRejected",
    "configGeneration",
    "configBytes",
)


def show_pools(store: Store) -> list[dict[str, Any]]:
    """All pools as JSON, those that zones name although they do not exist among them."""
    zones: dict[Key, int] = {}
    for zone in store.zones:
        key = (zone.meta.namespace, zone.pool)
        zones[key] = zones.get(key, 0) + 1
    return [
        {"namespace": key[0], "name": key[1], "zones": zones.get(key, 0), **_pool(store.pools.get(key))}
        for key in sorted(store.pool_keys())
    ]


def _pool(pool: Pool | None) -> dict[str, Any]:
    if pool is None:
        return {"exists": False, "ready": {}}
    return {"exists": True, "ready": _ready(pool.status)}


def show_pool(view: View, engines: Sequence[EngineLook], wanted: str) -> dict[str, Any]:
    """One pool as JSON, with its zones and engines.

    Args:
        view: what the store has.
        engines: what they say.
        wanted: zones whose name or tenant contains this; all if it is empty.
    """
    tellings = [engine.telling for engine in engines if engine.telling is not None]
    rows = [*_declared_rows(view.zones, tellings), *_registered_rows(tellings)]
    found = sorted((row for row in rows if _matches(row, wanted)), key=lambda row: (row["name"], row["registered"]))
    pool = view.pool
    return {
        **_pool(pool),
        "figures": {name: pool.status.get(name) for name in _POOL_FIGURES} if pool is not None else {},
        "zones": found[:MAX_ZONES],
        "zoneNames": sorted({row["name"] for row in rows})[:_MAX_NAMES],
        "zonesFound": len(found),
        "zonesInAll": len(rows),
        "engines": [_engine(engine) for engine in engines],
        "enginesNotReady": sorted(pod.meta.name for pod in view.pods if not (pod.ready and pod.ip)),
        "loans": [_loan(engine, view.zones) for engine in engines],
    }


def show_change(change: Change) -> dict[str, Any]:
    """One change of a zone or pool as JSON."""
    return {
        "unixTime": change.unix_time,
        "kind": change.kind,
        "name": change.name,
        "type": change.type,
        "reason": change.reason,
        "note": change.note,
        "count": change.count,
    }


def _matches(row: dict[str, Any], wanted: str) -> bool:
    return wanted in row["name"] or wanted in row["tenant"]


def _declared_rows(zones: Iterable[Zone], tellings: Sequence[Telling]) -> Iterable[dict[str, Any]]:
    told: dict[str, list[ZoneLook]] = {}
    for look in declared(tellings):
        told.setdefault(look.name, []).append(look)
    for zone in zones:
        looks = told.get(zone.meta.name, [])
        yield {
            "name": zone.meta.name,
            "tenant": zone.tenant,
            "registered": False,
            "priority": zone.config.priority if zone.config is not None else None,
            "weight": zone.config.weight if zone.config is not None else None,
            "ready": _ready(zone.status),
            **(_live(looks) if looks else _told(zone)),
        }


def _registered_rows(tellings: Sequence[Telling]) -> Iterable[dict[str, Any]]:
    told: dict[str, list[ZoneLook]] = {}
    for telling in tellings:
        for zone in telling.zones:
            if zone.is_registered:
                told.setdefault(zone.tenant, []).append(zone)
    for tenant, looks in told.items():
        yield {"name": tenant, "tenant": tenant, "registered": True, "ready": {}, **_live(looks)}


def _live(looks: Sequence[ZoneLook]) -> dict[str, Any]:
    """A zone's amounts, added up over what the engines say now."""
    asked = sum(look.query_tokens for look in looks)
    return {
        "live": True,
        "state": min((look.state for look in looks), key=_STATES.index),
        "reserved": sum(look.reserved for look in looks),
        "limit": sum(look.limit for look in looks),
        "held": sum(look.held for look in looks),
        "inUse": sum(look.in_use for look in looks),
        "cached": sum(look.cached for look in looks),
        "lent": sum(look.lent for look in looks),
        "borrowed": sum(look.borrowed for look in looks),
        "evictions": sum(look.evicted for look in looks),
        "hitPercent": min(100, 100 * sum(look.hit_tokens for look in looks) // asked) if asked else None,
        "waitingRequests": sum(look.waiting_requests for look in looks),
        "runningRequests": sum(look.running_requests for look in looks),
        "waitReason": next((look.wait_reason for look in looks if look.wait_reason is not None), None),
    }


def _told(zone: Zone) -> dict[str, Any]:
    """A zone's amounts by its status, which is written every so often."""
    status, engines = zone.status, zone.status.get("engines", [])
    amounts = ("state", "held", "inUse", "cached", "lent", "borrowed", "evictions", "hitPercent")
    sums = {name: sum(row.get(name, 0) for row in engines) if engines else None for name in ("reserved", "limit")}
    return {"live": False, **sums, **{name: status.get(name) for name in amounts}}


def _engine(engine: EngineLook) -> dict[str, Any]:
    telling = engine.telling
    shown: dict[str, Any] = {"pod": engine.pod.meta.name, "error": engine.error}
    if telling is not None:
        shown |= {
            "engineVersion": telling.engine_version,
            "capacityBlocks": telling.capacity_blocks,
            "blockSizeTokens": telling.block_size_tokens,
            "freeBlocks": telling.free_blocks,
            "generation": telling.generation,
            "refusal": telling.refusal,
            "inUse": sum(zone.in_use for zone in telling.zones),
            "cached": sum(zone.cached for zone in telling.zones),
            "waitingRequests": sum(zone.waiting_requests for zone in telling.zones),
            "runningRequests": sum(zone.running_requests for zone in telling.zones),
        }
    return shown


def _loan(engine: EngineLook, zones: Iterable[Zone]) -> dict[str, Any]:
    names = {zone.tenant: zone.meta.name for zone in zones}
    loans = engine.telling.loans if engine.telling is not None else ()
    return {
        "pod": engine.pod.meta.name,
        "loans": [
            {
                "lender": names.get(loan.lender, printable(loan.lender)),
                "borrower": names.get(loan.borrower, printable(loan.borrower)),
                "blocks": loan.blocks,
                "sinceUnixTime": loan.since_unix_time,
                "dueUnixTime": loan.due_unix_time,
            }
            for loan in loans[:MAX_ZONES]
        ],
    }


def _ready(status: Any) -> dict[str, Any]:
    found = ready_condition(status)
    return {name: found[name] for name in ("status", "reason", "message")} if found else {}

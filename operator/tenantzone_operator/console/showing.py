"""Converts the console's data to JSON. Amounts are in blocks unless the field's name says otherwise."""

from collections.abc import Iterable, Sequence
from typing import Any

from tenantzone_contract.cache.blocks import BlockKind, BlockMap
from tenantzone_contract.reports.report import EngineReport
from tenantzone_contract.reports.summary import ZoneSummary
from tenantzone_contract.reports.tier_summary import TierSummary, tier_summaries
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_contract.text import printable
from tenantzone_operator.console.changes import Change, condition_of
from tenantzone_operator.console.live import LiveEngine, by_name, declared
from tenantzone_operator.kube.conditions import Type
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.kube.store import Key, Store, View

MAX_ZONES = 100
"""Maximum number of zones on the page. Users find further zones with a filter."""
_MAX_NAMES = 1000
"""Maximum number of zones with a distinct colour and mark, in alphabetical order."""
_LONGEST_REFUSAL = 1000
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
    """Returns all pools as JSON, including pools that do not exist but that zones name."""
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
    return {"exists": True, "ready": shown_condition(pool.status, Type.READY)}


def show_pool(view: View, engines: Sequence[LiveEngine], wanted: str) -> dict[str, Any]:
    """Returns one pool as JSON, with its zones and engines.

    Args:
        view: the pool's objects in the store.
        engines: the pool's engines with their reports.
        wanted: selects zones whose name or tenant contains this text; empty selects all.
    """
    reports = [engine.report for engine in engines if engine.report is not None]
    rows = [*_declared_rows(view.zones, reports), *_registered_rows(reports)]
    found = sorted((row for row in rows if _matches(row, wanted)), key=lambda row: (row["name"], row["registered"]))
    pool = view.pool
    return {
        **_pool(pool),
        "figures": {name: pool.status.get(name) for name in _POOL_FIGURES} if pool is not None else {},
        "zones": found[:MAX_ZONES],
        "zoneNames": sorted({row["name"] for row in rows})[:_MAX_NAMES],
        "zonesFound": len(found),
        "zonesInAll": len(rows),
        "computedTokens": sum(row.get("computedTokens", 0) for row in rows),
        "engines": [*(_engine(engine) for engine in engines), *_not_ready(view)],
        "tiers": [row for engine in engines for row in _tiers(engine)],
        "loans": [_loan(engine, view.zones) for engine in engines],
    }


def show_change(change: Change) -> dict[str, Any]:
    """Returns one change of a zone or pool as JSON."""
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


def _declared_rows(zones: Iterable[Zone], reports: Sequence[EngineReport]) -> Iterable[dict[str, Any]]:
    reported = by_name(declared(reports))
    for zone in zones:
        looks = reported.get(zone.meta.name, [])
        yield {
            "name": zone.meta.name,
            "tenant": zone.tenant,
            "registered": False,
            "priority": zone.config.priority if zone.config is not None else None,
            "weight": zone.config.weight if zone.config is not None else None,
            "ready": shown_condition(zone.status, Type.READY),
            "latency": shown_condition(zone.status, Type.LATENCY_TARGET_MET),
            **(_live(looks) if looks else _reported(zone)),
        }


def _registered_rows(reports: Sequence[EngineReport]) -> Iterable[dict[str, Any]]:
    # Auto-registered zones are named after their tenants.
    reported = by_name(zone for report in reports for zone in report.zones if zone.auto_registered)
    for tenant, looks in reported.items():
        yield {"name": tenant, "tenant": tenant, "registered": True, "ready": {}, "latency": {}, **_live(looks)}


def _live(looks: Sequence[ZoneReport]) -> dict[str, Any]:
    """Returns a zone's fields from the engines' reports."""
    return {
        "live": True,
        **ZoneSummary.of(looks).fields(),
        **_requests(looks),
        "tiers": [summary.fields() for summary in tier_summaries(tier for look in looks for tier in look.tiers)],
        "reservedSeats": sum(look.reserved_seats for look in looks),
        "computedTokens": sum(look.computed_tokens for look in looks),
        "waitReason": next((printable(look.waits_for) for look in looks if look.waits_for is not None), None),
    }


def _reported(zone: Zone) -> dict[str, Any]:
    """Returns a zone's fields from the zone's status, which may be older than the engines' reports."""
    in_tiers = [TierSummary.read(row).fields() for row in zone.status.get("tiers") or ()]
    return {"live": False, **ZoneSummary.read(zone.status).fields(), "tiers": in_tiers}


def _requests(looks: Iterable[ZoneReport]) -> dict[str, int]:
    counts = [(look.waiting_requests, look.running_requests) for look in looks]
    return {
        "waitingRequests": sum(waiting for waiting, _ in counts),
        "runningRequests": sum(running for _, running in counts),
    }


def _engine(engine: LiveEngine) -> dict[str, Any]:
    pod, report = engine.pod.meta.name, engine.report
    if report is None:
        return {"pod": pod, "state": "Unreachable", "message": engine.error}
    rejected = report.config.rejected
    return {
        "pod": pod,
        "state": "Answers" if rejected is None else "RefusesConfig",
        "message": "" if rejected is None else printable(rejected.error, _LONGEST_REFUSAL),
        "engineVersion": printable(report.engine_version),
        "capacityBlocks": report.capacity_blocks,
        "blockSizeTokens": report.block_size_tokens,
        "freeBlocks": report.free_blocks,
        "generation": report.config.applied_generation,
        **_requests(report.zones),
    }


def _tiers(engine: LiveEngine) -> Iterable[dict[str, Any]]:
    """Iterates over the JSON of an engine's KV-cache tiers, with sizes in bytes."""
    for tier in engine.report.tiers if engine.report is not None else ():
        yield {
            "pod": engine.pod.meta.name,
            "tier": tier.tier,
            "heldBytes": tier.held_bytes,
            "capacityBytes": tier.capacity_bytes,
            "problem": printable(tier.problem),
        }


def _not_ready(view: View) -> list[dict[str, Any]]:
    names = sorted(pod.meta.name for pod in view.pods if not (pod.ready and pod.ip))
    return [{"pod": name, "state": "NotReady", "message": ""} for name in names]


def _loan(engine: LiveEngine, zones: Iterable[Zone]) -> dict[str, Any]:
    names = {zone.tenant: zone.meta.name for zone in zones}
    loans = engine.report.loans if engine.report is not None else ()
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


def shown_condition(status: Any, kind: Type) -> dict[str, Any]:
    """Returns the condition of this type in a status as JSON; empty if the status has no such condition."""
    found = condition_of(status, kind)
    return {name: found[name] for name in ("status", "reason", "message")} if found else {}


def show_blocks(found: BlockMap) -> dict[str, Any]:
    """Returns an engine's block map as JSON, with totals of each zone, of blocks without a zone and of free blocks."""
    kinds = tuple(
        kind.model_copy(
            update={"zone": kind.zone and printable(kind.zone), "tenant": kind.tenant and printable(kind.tenant)}
        )
        for kind in found.kinds
    )
    owners: dict[tuple[bool, str | None], list[BlockKind]] = {}
    for kind in kinds:
        is_free = kind.use == "free"
        owners.setdefault((is_free, None if is_free else kind.zone), []).append(kind)
    order = sorted(owners, key=lambda owner: (owner[0], owner[1] is None, owner[1] or ""))
    return {
        **found.model_copy(update={"kinds": kinds}).model_dump(mode="json", by_alias=True),
        "owners": [_owner(is_free, zone, owners[is_free, zone], found) for is_free, zone in order],
    }


def _owner(is_free: bool, zone: str | None, kinds: Sequence[BlockKind], found: BlockMap) -> dict[str, Any]:
    blocks = sum(kind.blocks for kind in kinds)
    return {
        "zone": zone,
        "isFree": is_free,
        "inUse": sum(kind.blocks for kind in kinds if kind.use == "in_use"),
        "cached": sum(kind.blocks for kind in kinds if kind.use == "cached"),
        "borrowed": sum(kind.blocks for kind in kinds if kind.borrowed),
        "blocks": blocks,
        "percent": _percent(blocks, found.capacity_blocks),
    }


def _percent(blocks: int, capacity: int) -> float:
    """Returns a percentage with one decimal. Integer arithmetic avoids overflow for any number an engine may send."""
    return min(1000, (1000 * blocks + capacity // 2) // capacity) / 10 if capacity else 0.0

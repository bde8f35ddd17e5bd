"""Implements ``top``, which shows a table of zones and the blocks that they use."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tenantzone_cli.api import Api
from tenantzone_cli.live import EngineAnswer, ask_pools
from tenantzone_cli.resources import read_pool, read_zone
from tenantzone_cli.table import render, shown
from tenantzone_cli.views.rows import Row, as_json, live_rows, status_rows
from tenantzone_contract.kube_names import API, POOLS, ZONES, resource_path

_FIGURES: dict[str, tuple[str, Callable[[Row], float | None]]] = {
    "held": ("HELD", lambda row: row.summary.held),
    "in-use": ("IN-USE", lambda row: row.summary.in_use),
    "cached": ("CACHED", lambda row: row.summary.cached),
    "lent": ("LENT", lambda row: row.summary.lent),
    "borrowed": ("BORROWED", lambda row: row.summary.borrowed),
    "hit": ("HIT%", lambda row: row.summary.hit_percent),
    "recomputed": ("RECOMPUTED%", lambda row: row.summary.recomputed_percent),
    "evictions": ("EVICTIONS", lambda row: row.summary.evictions),
    "rate": ("EVICT/S", lambda row: row.evictions_per_second),
}


@dataclass(frozen=True, slots=True)
class Selection:
    """What ``top`` shows: which zones, from which source, and in which order.

    Attributes:
        namespace: the zones' namespace; None for all namespaces.
        pool: the zones' pool; None for all pools.
        engines: whether to show each zone's engines, too.
        live: whether to read engines' reports instead of zones' statuses.
        sort: one of ``names.SORTS``.
    """

    namespace: str | None
    pool: str | None = None
    engines: bool = False
    live: bool = False
    sort: str = "name"


def read_rows(api: Api, selection: Selection) -> tuple[list[Row], list[EngineAnswer]]:
    """Returns the rows of all selected zones, and the engines' answers, which are empty without ``live``.

    Raises:
        ApiError: the user may not read the objects.
        Unreachable: the API server does not answer.
    """
    zones = [read_zone(body) for body in api.list(resource_path(API, selection.namespace, ZONES))]
    zones = [zone for zone in zones if selection.pool in (None, zone.pool)]
    if not selection.live:
        return list(status_rows(zones)), []
    pools = [read_pool(body) for body in api.list(resource_path(API, selection.namespace, POOLS))]
    answers = [answer for answer in ask_pools(api, pools) if selection.pool in (None, answer.pool[1])]
    return list(live_rows(zones, answers)), answers


def ordered(rows: Sequence[Row], sort: str) -> list[Row]:
    """Returns the rows sorted by zone name, or by an amount, largest first. A zone's engines stay below it."""
    if sort == "name":
        return sorted(rows, key=lambda row: row.zone_key)
    amount = _FIGURES[sort][1]
    rank = {row.zone_key: -(amount(row) or 0) if amount(row) is not None else 1 for row in rows if not row.engine}
    return sorted(rows, key=lambda row: (rank[row.zone_key], row.zone_key))


def table(rows: Sequence[Row], selection: Selection) -> list[str]:
    """Returns the lines of a table with the rows, or one line that says that there are no zones."""
    if not rows:
        where = f"namespace {selection.namespace}" if selection.namespace is not None else "any namespace"
        return [f"no TenantZones in {where}" + (f" and pool {selection.pool}" if selection.pool else "")]
    tiers = sorted({tier.tier for row in rows for tier in row.tiers})
    headers = ["NAME", "POOL", "STATE", *(header for header, _ in _FIGURES.values()), *map(str.upper, tiers), "READY"]
    if selection.namespace is None:
        headers.insert(0, "NAMESPACE")
    cells = [
        _cells(row, selection, tiers) for row in ordered(rows, selection.sort) if selection.engines or not row.engine
    ]
    return list(render(headers, cells))


def document(rows: Sequence[Row], selection: Selection, *, indent: int | None) -> str:
    """Returns the rows as one JSON document, for ``-o json``."""
    zones: dict[tuple[str, ...], dict[str, object]] = {}
    for row in ordered(rows, selection.sort):
        if not row.engine:
            head = {"namespace": row.namespace, "name": row.zone, "pool": row.pool, "ready": row.ready or None}
            zones[row.zone_key] = head | {"autoRegistered": row.is_registered} | as_json(row)
        elif selection.engines:
            engines = zones[row.zone_key].setdefault("engines", [])
            assert isinstance(engines, list)
            engines.append({"pod": row.engine} | as_json(row))
    return json.dumps({"zones": list(zones.values())}, indent=indent)


def silent_engines(answers: Sequence[EngineAnswer]) -> list[str]:
    """Returns a line with the reason for each engine that did not answer."""
    lines = []
    for answer in answers:
        if answer.report is None:
            advice = "; this requires the right to get pods/proxy, so leave out --live" if answer.is_forbidden else ""
            lines.append(f"{answer.pool[0]}/{answer.pod}: {answer.error}{advice}")
    return lines


def _cells(row: Row, selection: Selection, tiers: Sequence[str]) -> list[str]:
    name = f"  {row.engine}" if row.engine else row.zone
    pool = "" if row.engine else row.pool
    figures = (shown(amount(row)) for _, amount in _FIGURES.values())
    # One cell for each tier, with the held and reserved bytes.
    known = {tier.tier: tier.shown for tier in row.tiers}
    in_tiers = (shown(known.get(tier)) for tier in tiers)
    cells = [name, pool, shown(row.summary.state), *figures, *in_tiers, shown(row.ready)]
    return cells if selection.namespace is not None else ["" if row.engine else row.namespace, *cells]

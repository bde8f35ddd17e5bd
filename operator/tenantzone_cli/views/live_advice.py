"""``advise --watch``: shows the operator's advice for pools, and the changes that the operator has tried itself."""

import json
from collections.abc import Iterator, Sequence

from tenantzone_cli.api import Api
from tenantzone_cli.resources import Pool, read_pool, unix_time
from tenantzone_cli.table import duration, render, shown
from tenantzone_contract.kube_names import API, POOLS, resource_path
from tenantzone_contract.zone_config.specs import Body

_HEADERS = ("POOL", "MODE", "STATE", "ZONE", "FIELD", "SPEC", "VALUE", "SINCE", "WHY")


class NoPoolError(Exception):
    """The named pool does not exist."""


def read_pools(api: Api, namespace: str | None, name: str | None) -> list[Pool]:
    """Returns the selected pools.

    Args:
        api: a client of the API server.
        namespace: the namespace of the pools; None for all namespaces.
        name: the name of the pool; None for all pools.

    Raises:
        ApiError: the user may not read pools.
        Unreachable: the API server does not answer.
        NoPoolError: no pool has the given name.
    """
    pools = sorted(
        (read_pool(body) for body in api.list(resource_path(API, namespace, POOLS))), key=lambda pool: pool.key
    )
    named = [pool for pool in pools if name in (None, pool.name)]
    if name is not None and not named:
        raise NoPoolError(f"there is no ZonePool {name}{f' in namespace {namespace}' if namespace else ''}")
    return named


def advice_table(pools: Sequence[Pool], now: float) -> list[str]:
    """Returns the lines of a table with the advice for each pool. ``now`` is the current Unix time."""
    if not pools:
        return ["there is no ZonePool"]
    return list(render(_HEADERS, [row for pool in pools for row in _rows(pool, now)]))


def advice_document(pools: Sequence[Pool], *, indent: int | None) -> str:
    """Returns the advice for each pool as a JSON document, for ``-o json``."""
    rows = [
        {
            "namespace": pool.namespace,
            "pool": pool.name,
            "mode": _mode(pool),
            "recommendation": pool.status.get("recommendation"),
            "adjustments": pool.status.get("adjustments") or [],
        }
        for pool in pools
    ]
    return json.dumps({"pools": rows}, indent=indent)


def _rows(pool: Pool, now: float) -> Iterator[tuple[str, ...]]:
    recommended = pool.status.get("recommendation")
    rows = list(pool.status.get("adjustments") or [])
    if recommended:
        rows.append({"state": "Recommended", "spec": recommended.get("from", ""), **recommended})
    if not rows:
        yield pool.name, _mode(pool), *("-",) * 6, _nothing(pool)
    for row in rows:
        yield (pool.name, _mode(pool), *_cells(row, now))


def _cells(row: Body, now: float) -> Iterator[str]:
    for name in ("state", "zone", "field", "spec", "value"):
        yield shown(row.get(name))
    since = unix_time(row.get("since"))
    yield "-" if since is None else duration(now - since)
    yield shown(row.get("message"))


def _mode(pool: Pool) -> str:
    return str((pool.spec.get("advice") or {}).get("mode", "Recommend"))


def _nothing(pool: Pool) -> str:
    return "spec.advice.mode is Never" if _mode(pool) == "Never" else "there is no advice"

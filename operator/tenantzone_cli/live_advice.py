"""``advise --watch``: what pools are advised by their engines' reports, and what came of it."""

import json
from collections.abc import Iterator, Sequence

from tenantzone_cli.api import Api, Body
from tenantzone_cli.names import API, POOLS, within
from tenantzone_cli.resources import Pool, read_pool, unix_time
from tenantzone_cli.table import duration, render, shown

_HEADERS = ("POOL", "MODE", "STATE", "ZONE", "FIELD", "SPEC", "VALUE", "SINCE", "WHY")


class NoPoolError(Exception):
    """There is no such pool."""


def read_pools(api: Api, namespace: str | None, name: str | None) -> list[Pool]:
    """The pools that are looked at.

    Args:
        api: of the cluster.
        namespace: None stands for all.
        name: of one pool only; None: of all.

    Raises:
        ApiError: the user may not read them.
        Unreachable: the API server does not answer.
        NoPoolError: there is none of this name.
    """
    pools = sorted((read_pool(body) for body in api.list(within(API, namespace, POOLS))), key=lambda pool: pool.key)
    named = [pool for pool in pools if name in (None, pool.name)]
    if name is not None and not named:
        raise NoPoolError(f"there is no ZonePool {name}{f' in namespace {namespace}' if namespace else ''}")
    return named


def advice_table(pools: Sequence[Pool], now: float) -> list[str]:
    """What each pool is advised; ``now`` is a Unix time."""
    if not pools:
        return ["there is no ZonePool"]
    return list(render(_HEADERS, [row for pool in pools for row in _rows(pool, now)]))


def advice_document(pools: Sequence[Pool], *, indent: int | None) -> str:
    """The same for programs."""
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
    return "spec.advice.mode is Never" if _mode(pool) == "Never" else "nothing is known that would help"

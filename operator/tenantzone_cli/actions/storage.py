"""Implements ``storage``, which shows the bytes and quotas of the KV-cache manager's storages and groups."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenantzone_cli.api import Api
from tenantzone_cli.resources import Thing, read_thing
from tenantzone_cli.table import render, shown
from tenantzone_contract.kube_names import API, GROUPS, STORAGES
from tenantzone_contract.quantity import parse_bytes, shown_bytes

_STORAGE_COLUMNS = ("STORAGE", "TYPE", "HELD", "CAPACITY", "USED%", "ENABLED", "HEALTHY", "READY", "PLACE")
_ZONE_COLUMNS = ("ZONE", "GROUP", "TYPE", "HELD", "RESERVED")
_GROUP_COLUMNS = ("GROUP", "TYPE", "HELD", "LIMIT", "USED%", "WATERMARK", "INSTANCES", "EVICTED", "READY")


def read_storages(api: Api) -> tuple[list[Thing], list[Thing]]:
    """Returns all KVStorages and all KVCacheGroups, each sorted by name.

    Raises:
        ApiError: the API server refuses a request, or lacks these kinds.
        Unreachable: the API server does not answer.
    """
    storages, groups = ([read_thing(body) for body in api.list(f"{API}/{plural}")] for plural in (STORAGES, GROUPS))
    return sorted(storages, key=lambda each: each.name), sorted(groups, key=lambda each: each.name)


def tables(storages: Sequence[Thing], groups: Sequence[Thing]) -> Iterator[str]:
    """Iterates over the lines of tables of the storages, the groups and the groups' zones, followed by problems."""
    if not storages and not groups:
        yield "there are no KVStorages and no KVCacheGroups; see docs/kv-cache-manager.md to create some"
        return
    yield from render(_STORAGE_COLUMNS, [_storage_row(each) for each in storages])
    if groups:
        yield ""
        yield from render(_GROUP_COLUMNS, [row for each in groups for row in _group_rows(each)])
    if zones := [row for each in groups for row in _zone_rows(each)]:
        yield ""
        yield from render(_ZONE_COLUMNS, zones)
    troubles = [line for each in (*storages, *groups) for line in _trouble(each)]
    if troubles:
        yield ""
        yield from troubles


def document(storages: Sequence[Thing], groups: Sequence[Thing]) -> str:
    """Returns storages and groups as a JSON document, for ``-o json``."""
    return json.dumps({"storages": list(map(_plain, storages)), "groups": list(map(_plain, groups))}, indent=1)


def _storage_row(storage: Thing) -> list[str]:
    held, capacity = storage.status.get("held"), _bytes(storage.spec.get("capacity"))
    return [
        storage.name,
        shown(storage.spec.get("type")),
        _amount(held),
        _amount(capacity),
        _percent(held, capacity),
        "yes" if storage.spec.get("enabled", True) else "no",
        _condition(storage, "Healthy"),
        shown(storage.ready),
        shown(storage.status.get("place")),
    ]


def _group_rows(group: Thing) -> Iterator[list[str]]:
    """Iterates over a group's rows: one with the totals, and one for each storage type."""
    status, quota = group.status, group.spec.get("quota") or {}
    held, limit = status.get("held"), _bytes(quota.get("limit"))
    yield [
        group.name,
        "all",
        _amount(held),
        _amount(limit),
        _percent(held, limit),
        shown(quota.get("watermark")),
        shown(status.get("instances")),
        shown(status.get("evictedBlocks")),
        shown(group.ready),
    ]
    quotas: Mapping[str, Any] = {each["type"]: each for each in group.spec.get("types") or ()}
    for reported in status.get("types") or ():
        own = quotas.get(reported["type"], {})
        held, limit = reported.get("held"), _bytes(own.get("limit"))
        watermark = shown(own.get("watermark"))
        yield ["", reported["type"], _amount(held), _amount(limit), _percent(held, limit), watermark, "", "", ""]


def _zone_rows(group: Thing) -> Iterator[list[str]]:
    for reported in group.status.get("zones") or ():
        amounts = (_amount(reported.get(field)) for field in ("held", "reserved"))
        yield [f"{reported['namespace']}/{reported['name']}", group.name, reported["type"], *amounts]


def _trouble(thing: Thing) -> Iterator[str]:
    if thing.ready != "True":
        message = (
            thing.status.get("message")
            or "no operator handles this object; check that an operator runs with --manager-url"
        )
        yield f"{thing.name}: {message}"


def _condition(thing: Thing, kind: str) -> str:
    found = thing.condition(kind)
    return found.status if found is not None else "-"


def _bytes(amount: int | str | None) -> int | None:
    try:
        return parse_bytes(amount) if amount is not None else None
    except ValueError:
        return None


def _amount(count: int | None) -> str:
    return shown_bytes(count) if count is not None else "-"


def _percent(part: int | None, whole: int | None) -> str:
    return str(round(100 * part / whole)) if part is not None and whole else "-"


def _plain(thing: Thing) -> dict[str, Any]:
    return {"name": thing.name, "spec": thing.spec, "status": thing.status}

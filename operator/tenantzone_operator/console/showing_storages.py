"""Converts KVStorages and KVCacheGroups to the console's JSON, with amounts in bytes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenantzone_operator.cache_manager.declared import DeclaredGroup, DeclaredStorage
from tenantzone_operator.console.showing import shown_condition
from tenantzone_operator.console.storages import Stored
from tenantzone_operator.kube.conditions import Type

MAX_ROWS = 300
"""Maximum number of rows of a table; `kubectl tenantzone storage` shows all rows."""


def show_storages(stored: Stored) -> dict[str, Any]:
    """Returns all storages and groups as JSON, and the bytes of each zone in the groups that name the zone."""
    rows: Mapping[str, Sequence[Any]] = {
        "storages": list(map(_storage, stored.storages)),
        "groups": list(map(_group, stored.groups)),
        "types": [row for group in stored.groups for row in _types(group)],
        "zones": [row for group in stored.groups for row in _zones(group)],
    }
    return {
        **{name: found[:MAX_ROWS] for name, found in rows.items()},
        "inAll": {name: len(found) for name, found in rows.items()},
    }


def _storage(storage: DeclaredStorage) -> dict[str, Any]:
    status = storage.status
    return {
        "name": storage.meta.name,
        "type": storage.wanted.get("type"),
        "place": storage.place,
        "ready": shown_condition(status, Type.READY),
        "healthy": shown_condition(status, Type.HEALTHY),
        "held": status.get("held"),
        **_quota(storage.wanted),
    }


def _group(group: DeclaredGroup) -> dict[str, Any]:
    status, wanted = group.status, group.wanted
    return {
        "name": group.meta.name,
        "ready": shown_condition(status, Type.READY),
        "storages": list(group.storages),
        "policy": wanted.get("eviction_policy", "LRU"),
        "ttlSeconds": wanted.get("ttl_seconds"),
        "held": status.get("held"),
        "instances": status.get("instances"),
        "evictedBlocks": status.get("evictedBlocks"),
        **_quota(wanted.get("total") or {}),
    }


def _types(group: DeclaredGroup) -> Iterator[dict[str, Any]]:
    """Iterates over rows with the group's bytes in each storage type that has a limit or stores bytes."""
    limits: Mapping[str, Mapping[str, Any]] = group.wanted.get("types") or {}
    held = {row["type"]: row.get("held") for row in group.status.get("types") or ()}
    for kind in sorted(held.keys() | limits.keys()):
        yield {"group": group.meta.name, "type": kind, "held": held.get(kind), **_quota(limits.get(kind, {}))}


def _zones(group: DeclaredGroup) -> Iterator[dict[str, Any]]:
    """Iterates over rows with the bytes, reservation and limit of each zone of a group in each storage type."""
    held = {(row["namespace"], row["name"], row["type"]): row.get("held") for row in group.status.get("zones") or ()}
    declared = {(*quotas.zone, kind): bounds for quotas in group.zones for kind, bounds in quotas.types.items()}
    for key in sorted(held.keys() | declared.keys()):
        namespace, name, kind = key
        bounds = declared.get(key, {})
        yield {
            "namespace": namespace,
            "name": name,
            "group": group.meta.name,
            "type": kind,
            "held": held.get(key),
            "reserved": bounds.get("reserved", 0),
            "limit": bounds.get("limit"),
        }


def _quota(quota: Mapping[str, Any]) -> dict[str, Any]:
    watermark = quota.get("watermark")
    return {
        "limit": quota.get("limit"),
        "watermarkPercent": None if watermark is None else round(100 * watermark),
    }

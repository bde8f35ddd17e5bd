"""What KVStorages and KVCacheGroups declare, in the words of the manager's API; pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tenantzone_contract.quantity import parse_bytes
from tenantzone_operator.kube.durations import parse_duration
from tenantzone_operator.kube.resources import Meta, read_meta
from tenantzone_operator.kube.specs import Body

FINALIZER: Final = "tenantzone.io/kv-cache-manager"
"""Keeps a deleted object until the manager has let its blocks go: nobody else would know where they are."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A KVStorage or a KVCacheGroup."""

    meta: Meta
    finalizers: tuple[str, ...]
    wanted: Body
    """What the manager shall know, as its API says it and shows it again: without what is the default."""
    invalid: str
    """Why it can't be used; empty: it can."""
    status: Body

    @property
    def is_held(self) -> bool:
        """Whether it outlives its deletion until our finalizer is taken off."""
        return FINALIZER in self.finalizers


@dataclass(frozen=True, slots=True)
class DeclaredStorage(Declared):
    """A KVStorage."""

    place: str
    """Where it is, in one line."""


@dataclass(frozen=True, slots=True)
class DeclaredGroup(Declared):
    """A KVCacheGroup."""

    storages: tuple[str, ...]
    pools: tuple[tuple[str, str], ...]
    """Namespace and name of each."""


def read_storage(body: Body) -> DeclaredStorage:
    """A KVStorage from its JSON in the API."""
    meta, spec = read_meta(body), body.get("spec", {})
    wanted, invalid = _build(lambda: _storage(meta.name, spec))
    return DeclaredStorage(meta, _finalizers(body), wanted, invalid, body.get("status", {}), _place(spec))


def read_group(body: Body) -> DeclaredGroup:
    """A KVCacheGroup from its JSON in the API."""
    meta, spec = read_meta(body), body.get("spec", {})
    wanted, invalid = _build(lambda: _group(meta.name, spec))
    pools = tuple((pool["namespace"], pool["name"]) for pool in spec.get("pools", ()))
    storages = tuple(spec.get("storages", ()))
    return DeclaredGroup(meta, _finalizers(body), wanted, invalid, body.get("status", {}), storages, pools)


def emptied_storage(storage: Body) -> Body:
    """A storage that the manager knows, as it shall know it until nothing lies there: all that does is too much."""
    return {**storage, "limit": 0, "watermark": 1.0}


def emptied_group(group: Body) -> Body:
    """The same of a group, in which nobody may register any more."""
    return {"name": group["name"], "storages": group["storages"], "total": {"limit": 0, "watermark": 1.0}}


def _storage(name: str, spec: Body) -> Body:
    files, s3 = spec.get("fileSystem"), spec.get("s3")
    options: dict[str, Any] = {}
    if files is not None:
        options = {"root": files["path"], **_given(slots_per_file=files.get("slotsPerFile"))}
    elif s3 is not None:
        options = {"bucket": s3["bucket"]}
        options |= _given(
            prefix=s3.get("prefix"),
            endpoint=s3.get("endpoint"),
            region=s3.get("region"),
            credentials=s3.get("credentialsKey"),
        )
    else:
        raise ValueError(f"this operator knows no storage of type {spec.get('type')}")
    options |= _given(takeover=spec.get("takeOver"))
    wanted = {"name": name, "type": spec["type"], "options": options}
    if not spec.get("enabled", True):
        wanted["enabled"] = False
    return {**wanted, **_quota("capacity", spec.get("capacity"), spec.get("watermark"))}


def _group(name: str, spec: Body) -> Body:
    quota = spec.get("quota") or {}
    policy, ttl = spec.get("evictionPolicy", "LRU"), spec.get("ttl")
    types = {
        each["type"]: _quota(f"types[{each['type']}].limit", each["limit"], each.get("watermark"))
        for each in spec.get("types", ())
    }
    return {
        "name": name,
        "storages": list(spec["storages"]),
        **_given(
            pools=sorted(f"{pool['namespace']}/{pool['name']}" for pool in spec.get("pools", ())),
            total=_quota("quota.limit", quota.get("limit"), quota.get("watermark")),
            types=types,
            eviction_policy=policy if policy != "LRU" else None,
            ttl_seconds=parse_duration(ttl) if ttl is not None else None,
        ),
    }


def _quota(path: str, limit: int | str | None, watermark: str | None) -> Body:
    if limit is None:
        return {}
    try:
        size = parse_bytes(limit)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return {"limit": size} | ({"watermark": int(watermark.removesuffix("%")) / 100} if watermark is not None else {})


def _place(spec: Body) -> str:
    """Where it is, as one writes it: a path, or a URL with the server's if it is not AWS."""
    if (files := spec.get("fileSystem")) is not None:
        return str(files["path"])
    s3 = spec.get("s3") or {}
    at = f" at {s3['endpoint']}" if s3.get("endpoint") else ""
    return f"s3://{'/'.join(part for part in (s3.get('bucket', ''), s3.get('prefix', '')) if part)}{at}"


def _given(**fields: Any) -> dict[str, Any]:
    """Those of these fields that say anything: the manager shows none of the others again."""
    return {name: value for name, value in fields.items() if value}


def _finalizers(body: Body) -> tuple[str, ...]:
    return tuple(body["metadata"].get("finalizers") or ())


def _build(make: Callable[[], Body]) -> tuple[Body, str]:
    try:
        return make(), ""
    except ValueError as error:
        return {}, str(error)

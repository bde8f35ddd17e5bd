"""Pure functions that translate KVStorages and KVCacheGroups to objects of the KV-cache manager's API."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tenantzone_contract.duration import parse_duration
from tenantzone_contract.kube_names import GROUP
from tenantzone_contract.quantity import parse_bytes, shown_bytes
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.resources import Meta, read_meta
from tenantzone_operator.kube.store import Key

NO_END: Final = 2**63
"""Value that stands for an unlimited number of bytes."""

FINALIZER: Final = f"{GROUP}/kv-cache-manager"
"""Finalizer that keeps a deleted object, and with it the blocks' location, until the manager has freed all blocks."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A KVStorage or a KVCacheGroup."""

    meta: Meta
    finalizers: tuple[str, ...]
    wanted: Body
    """The object for the manager's API, without fields that have default values, as in the manager's listings."""
    invalid: str
    """Why the spec can't be used; empty if it is valid."""
    status: Body

    @property
    def is_held(self) -> bool:
        """Whether the object has the operator's finalizer, so that a deletion waits for the operator."""
        return FINALIZER in self.finalizers


@dataclass(frozen=True, slots=True)
class DeclaredStorage(Declared):
    """A KVStorage."""

    place: str
    """Location of the storage, as a path or URL."""


@dataclass(frozen=True, slots=True)
class ZoneQuotas:
    """The reservations and limits of a TenantZone in a group that names the zone."""

    zone: Key
    types: Mapping[str, Body]
    """For each storage type, an object with ``reserved``, ``limit`` or both, named as in the manager's API."""


@dataclass(frozen=True, slots=True)
class DeclaredGroup(Declared):
    """A KVCacheGroup."""

    storages: tuple[str, ...]
    pools: tuple[Key, ...]
    zones: tuple[ZoneQuotas, ...]

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces of the pools and zones that the group names."""
        return tuple(sorted({namespace for namespace, _ in (*self.pools, *(each.zone for each in self.zones))}))

    def within(self, namespace: str | None) -> "DeclaredGroup":
        """Returns the group with only its pools and zones in ``namespace``; with all if ``namespace`` is None."""
        if namespace is None:
            return self
        return replace(
            self,
            pools=tuple(pool for pool in self.pools if pool[0] == namespace),
            zones=tuple(each for each in self.zones if each.zone[0] == namespace),
        )


def read_storage(body: Body) -> DeclaredStorage:
    """Parse a KVStorage from its JSON in the Kubernetes API."""
    meta, spec = read_meta(body), body.get("spec", {})
    wanted, invalid = _build(lambda: _storage(meta.name, spec))
    return DeclaredStorage(meta, _finalizers(body), wanted, invalid, body.get("status", {}), _place(spec))


def read_group(body: Body) -> DeclaredGroup:
    """Parse a KVCacheGroup from its JSON in the Kubernetes API."""
    meta, spec = read_meta(body), body.get("spec", {})
    zones: list[ZoneQuotas] = []
    wanted, invalid = _build(lambda: _group(meta.name, spec, zones))
    pools = tuple(_key(pool) for pool in spec.get("pools", ()))
    storages = tuple(spec.get("storages", ()))
    status = body.get("status", {})
    return DeclaredGroup(meta, _finalizers(body), wanted, invalid, status, storages, pools, tuple(zones))


def emptied_storage(storage: Body) -> Body:
    """Returns a registered storage with limit 0, so that the manager evicts all blocks from the storage."""
    return {**storage, "limit": 0, "watermark": 1.0}


def emptied_group(group: Body) -> Body:
    """Returns a group with limit 0 and no other setting. Instances can't register in such a group."""
    return {"name": group["name"], "storages": group["storages"], "total": {"limit": 0, "watermark": 1.0}}


def _storage(name: str, spec: Body) -> Body:
    files, s3, pool = spec.get("fileSystem"), spec.get("s3"), spec.get("mooncake")
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
    elif pool is not None:
        options = {"master": pool["master"], **_given(prefix=pool.get("prefix"), http=pool.get("http"))}
    else:
        raise ValueError(f"this operator does not support storages of type {spec.get('type')}")
    options |= _given(takeover=spec.get("takeOver"))
    wanted = {"name": name, "type": spec["type"], "options": options}
    if not spec.get("enabled", True):
        wanted["enabled"] = False
    return {**wanted, **_quota("capacity", spec.get("capacity"), spec.get("watermark"))}


def _group(name: str, spec: Body, zones: list[ZoneQuotas]) -> Body:
    """Translate a group's spec except for its pools and zones, and append the quotas of its zones to ``zones``."""
    zones += [ZoneQuotas(_key(each), _types_of_zone(each)) for each in spec.get("zones", ())]
    quota = spec.get("quota") or {}
    policy, ttl = spec.get("evictionPolicy", "LRU"), spec.get("ttl")
    types = {
        each["type"]: _quota(f"types[{each['type']}].limit", each["limit"], each.get("watermark"))
        for each in spec.get("types", ())
    }
    _check_promises(zones, types, quota.get("limit"))
    return {
        "name": name,
        "storages": list(spec["storages"]),
        **_given(
            total=_quota("quota.limit", quota.get("limit"), quota.get("watermark")),
            types=types,
            eviction_policy=policy if policy != "LRU" else None,
            ttl_seconds=parse_duration(ttl) if ttl is not None else None,
            moves=_moves(spec.get("moves")),
        ),
    }


def _types_of_zone(spec: Body) -> dict[str, Body]:
    name = "/".join(_key(spec))
    quotas: dict[str, Body] = {}
    for each in spec.get("types", ()):
        path = f"zones[{name}].types[{each['type']}]"
        bounds = {field: _bytes(f"{path}.{field}", each[field]) for field in ("reserved", "limit") if field in each}
        if bounds.get("limit", NO_END) < bounds.get("reserved", 0):
            raise ValueError(f"{path}: limit must not be below reserved; raise limit or lower reserved")
        _check_limit(f"{path}.limit", bounds.get("limit"))
        quotas[each["type"]] = {field: size for field, size in bounds.items() if size or field == "limit"}
    return quotas


def _check_promises(zones: Sequence[ZoneQuotas], types: Mapping[str, Body], limit: int | str | None) -> None:
    """Check that the group's limits have room for the reservations of all zones.

    Raises:
        ValueError: the zones reserve more than a limit of the group.
    """
    promised: dict[str, int] = {}
    for zone in zones:
        for kind, quota in zone.types.items():
            promised[kind] = promised.get(kind, 0) + quota.get("reserved", 0)
    for what, size, room in (
        *((f"of {kind}", size, types.get(kind, {}).get("limit")) for kind, size in promised.items()),
        ("in total", sum(promised.values()), _bytes("quota.limit", limit) if limit is not None else None),
    ):
        if room is not None and size > room:
            raise ValueError(
                f"zones reserve {shown_bytes(size)} {what}, but the group's limit is {shown_bytes(room)}; raise the "
                "limit or lower reservations"
            )


def _key(spec: Body) -> Key:
    return spec["namespace"], spec["name"]


def _bytes(path: str, amount: int | str) -> int:
    try:
        return parse_bytes(amount)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_limit(path: str, size: int | None) -> None:
    if size == 0:
        raise ValueError(f"{path} must be 1 or more")


def _quota(path: str, limit: int | str | None, watermark: str | None) -> Body:
    if limit is None:
        return {}
    size = _bytes(path, limit)
    _check_limit(path, size)
    return {"limit": size} | ({"watermark": int(watermark.removesuffix("%")) / 100} if watermark is not None else {})


def _moves(moves: Body | None) -> Body:
    if moves is None:
        return {}
    path = "moves.bytesPerSecond"
    rate = _bytes(path, moves["bytesPerSecond"])
    _check_limit(path, rate)
    return {"bytes_per_second": rate}


def _place(spec: Body) -> str:
    """Returns the location as a path or URL, followed by the endpoint of an S3 server that is not AWS."""
    if (files := spec.get("fileSystem")) is not None:
        return str(files["path"])
    if (pool := spec.get("mooncake")) is not None:
        return f"mooncake://{'/'.join(part for part in (pool['master'], pool.get('prefix', '')) if part)}"
    s3 = spec.get("s3") or {}
    at = f" at {s3['endpoint']}" if s3.get("endpoint") else ""
    return f"s3://{'/'.join(part for part in (s3.get('bucket', ''), s3.get('prefix', '')) if part)}{at}"


def _given(**fields: Any) -> dict[str, Any]:
    """Returns only the fields that are set, because the manager's listings leave out the other fields."""
    return {name: value for name, value in fields.items() if value}


def _finalizers(body: Body) -> tuple[str, ...]:
    return tuple(body["metadata"].get("finalizers") or ())


def _build(make: Callable[[], Body]) -> tuple[Body, str]:
    try:
        return make(), ""
    except ValueError as error:
        return {}, str(error)

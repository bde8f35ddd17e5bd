"""Reads the zones of a pool from a file, which is the pool's config.json or contains Kubernetes objects."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import ValidationError

from tenantzone_contract.zone_config.config import ConfigError, PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import explain, make_config
from tenantzone_contract.zone_config.packing import PACKED_KEY, ConfigFiles, unpack_config
from tenantzone_contract.zone_config.share import floor_blocks
from tenantzone_contract.zone_config.specs import pool_config, zone_config
from tenantzone_replay.traces.load import TraceError

_GROUP: Final = "tenantzone.io/"
_ZONE_ONLY: Final = frozenset({"pool", "tenant"})
"""Fields of a zone's spec that this module reads directly."""
_POOL_ONLY: Final = frozenset({"selector", "adminPort", "blocksPerEngine", "advice"})
"""Fields of a pool's spec that are not part of its engines' config."""

_Made = TypeVar("_Made")
Place = str
"""Location of an object in its file, for messages."""


def read_zones(path: Path, blocks: int) -> RuntimeConfig:
    """Read a pool's config.json, or TenantZones and their ZonePool in YAML or JSON.

    Objects of other kinds are skipped. Statuses are ignored, so zones that the operator has refused are also read.

    Args:
        path: the file.
        blocks: the number of blocks of an engine. The zones' reservations must not exceed it.

    Raises:
        OSError: the file can't be read.
        TraceError: the file is invalid. The message names the file, the object and the field.
    """
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise TraceError(f"{path} is not a text file; use the pool's config.json, or a file with TenantZones") from None
    try:
        if _is_config(text):
            packed = path.with_name(PACKED_KEY)
            return unpack_config(ConfigFiles(text, packed.read_bytes() if packed.exists() else None))
        return _of_objects([*_objects(text)], blocks)
    except (ConfigError, ValueError) as error:
        raise TraceError(f"{path}: {error}") from None
    except RecursionError:
        raise TraceError(f"{path}: the file is nested too deeply, or a YAML alias refers to itself") from None


def _is_config(text: str) -> bool:
    """Returns whether a text looks like a pool's config.json, that is, a JSON object without ``kind``."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        read = json.loads(text)
    except ValueError:
        return True
    return not (isinstance(read, dict) and "kind" in read)


def _objects(text: str) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Yields the location and the content of each object in all documents, including the items of lists.

    Raises:
        ValueError: a document is not a Kubernetes object.
    """
    try:
        documents = [*yaml.safe_load_all(text)]
    except yaml.YAMLError as error:
        raise ValueError(f"invalid YAML: {' '.join(str(error).split())}") from None
    for number, document in enumerate(documents, 1):
        if document is not None:
            yield from _listed(f"document {number}", document)


def _listed(place: Place, found: Any) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise ValueError(f"{place}: expected an object with a kind, such as TenantZone")
    if not found["kind"].endswith("List"):
        yield place, found
        return
    items = found.get("items")
    if not isinstance(items, list):
        raise ValueError(f"{place}: items: expected a list")
    for index, item in enumerate(items):
        yield from _listed(f"{place}, items[{index}]", item)


def _of_objects(objects: Sequence[tuple[Place, Mapping[str, Any]]], blocks: int) -> RuntimeConfig:
    ours = [each for each in objects if str(each[1].get("apiVersion", "")).startswith(_GROUP)]
    declared = [_zone(place, found) for place, found in ours if found["kind"] == "TenantZone"]
    if not declared:
        kinds = ", ".join(sorted({found["kind"] for _, found in objects})) or "nothing"
        raise ValueError(f"the file has no TenantZone of {_GROUP}v1alpha1, only {kinds}")
    pools = sorted({pool for pool, _ in declared})
    if len(pools) > 1:
        named = ", ".join("/".join(filter(None, pool)) for pool in pools[:5])
        raise ValueError(f"the zones belong to several pools ({named}); use a file with the zones of one pool")
    (namespace, name) = pools[0]
    zones = tuple(zone for _, zone in declared)
    reserved = sum(floor_blocks(zone.reserved, blocks) for zone in zones)
    if reserved > blocks:
        raise ValueError(
            f"the zones reserve {reserved:,} blocks, but the engine has {blocks:,}; lower reserved, or raise --blocks"
        )
    shared = [
        _pool(place, found)
        for place, found in ours
        if found["kind"] == "ZonePool" and _identity(place, found) == (namespace, name)
    ]
    if len(shared) > 1:
        raise ValueError(f"the file has ZonePool {name} {len(shared)} times; keep one")
    pool = shared[0] if shared else PoolConfig(namespace=namespace or "default", name=name)
    return make_config(1, pool, zones)


def _identity(place: Place, found: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the namespace and the name of an object. The namespace is "" if the object sets none."""
    metadata = found.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise ValueError(f"{place}: metadata.name: expected the object's name")
    return str(metadata.get("namespace") or ""), name


def _zone(place: Place, found: Mapping[str, Any]) -> tuple[tuple[str, str], ZoneConfig]:
    """Returns the namespace and the name of a zone's pool, and the zone's config."""
    namespace, name = _identity(place, found)
    where = f"{place}, TenantZone {name}"
    spec = _spec(where, found)
    pool, tenant = spec.get("pool"), spec.get("tenant", name)
    if not isinstance(pool, str) or not pool:
        raise ValueError(f"{where}: spec.pool: expected a ZonePool's name")
    terms = _Followed(spec, _ZONE_ONLY)
    zone = _read(where, terms, lambda: zone_config(name, 1, tenant, terms, ""))
    return (namespace, pool), zone


def _spec(where: Place, found: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = found.get("spec", {})
    if not isinstance(spec, dict):
        raise ValueError(f"{where}: spec: expected an object")
    return spec


def _pool(place: Place, found: Mapping[str, Any]) -> PoolConfig:
    namespace, name = _identity(place, found)
    where = f"{place}, ZonePool {name}"
    terms = _Followed(_spec(where, found), _POOL_ONLY)
    return _read(where, terms, lambda: pool_config(namespace or "default", name, terms))


def _read(where: Place, terms: "_Followed", make: Callable[[], _Made]) -> _Made:
    """Returns the part of the config that ``make`` creates from a spec. Rejects unknown fields of the spec.

    Raises:
        ValueError: the spec is invalid or has an unknown field. The message names the object and the field.
    """
    try:
        made = make()
    except ValidationError as error:
        raise ValueError(f"{where}: spec: {explain(error)}") from None
    except KeyError as error:
        raise ValueError(f"{where}: spec: {error.args[0]} is missing") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: spec.{error}") from None
    unknown = next(terms.unread(), None)
    if unknown is not None:
        raise ValueError(f"{where}: unknown field {unknown}; remove or correct it")
    return made


class _Followed(dict[str, Any]):
    """A part of a spec that tracks which fields are read, so that unread fields can be reported as unknown.

    Args:
        plain: the part as written in the file.
        read: fields that count as read, because other code reads them.
        path: the path of the part, such as ``spec.lending``.
    """

    def __init__(self, plain: Mapping[str, Any], read: Collection[str] = (), path: str = "spec") -> None:
        super().__init__(
            {name: value if name in read else _followed(value, f"{path}.{name}") for name, value in plain.items()}
        )
        self._path = path
        self._were_read = set(read)

    def get(self, name: str, default: Any = None) -> Any:
        self._were_read.add(name)
        value = super().get(name, default)
        if isinstance(default, dict) and not isinstance(value, dict):
            raise ValueError(f"{f'{self._path}.{name}'.removeprefix('spec.')}: expected an object, got {value!r:.60}")
        return value

    def __getitem__(self, name: str) -> Any:
        self._were_read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._were_read.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self._were_read.update(super().keys())
        return super().__iter__()

    def keys(self) -> Any:
        self._were_read.update(super().keys())
        return super().keys()

    def unread(self) -> Iterator[str]:
        """Yields the paths of the fields that were not read."""
        for name, value in self.items():
            if name not in self._were_read:
                yield f"{self._path}.{name}"
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, _Followed):
                    yield from part.unread()


def _followed(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        return _Followed(value, path=path)
    if isinstance(value, list):
        return [_followed(each, f"{path}[{index}]") for index, each in enumerate(value)]
    return value

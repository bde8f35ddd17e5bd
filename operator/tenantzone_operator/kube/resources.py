"""Models of the objects that the operator watches, reduced to the fields that it needs.

The API server has validated the objects against the CRDs. If a further check fails, the functions here do not raise an
exception: they set the model's ``invalid`` to a message for the status.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tenantzone_contract.reports.report import DEFAULT_ADMIN_PORT
from tenantzone_contract.zone_config.config import (
    CONFIG_HASH_ANNOTATION,
    PURGE_ANNOTATION,
    PoolConfig,
    PurgeId,
    ZoneConfig,
)
from tenantzone_contract.zone_config.identity import SECRETS_HASH_ANNOTATION
from tenantzone_contract.zone_config.specs import Body, pool_config, zone_config
from tenantzone_operator.kube.advice_spec import AdviceSpec, read_advice
from tenantzone_operator.kube.not_enforced import pool_fields

Model = TypeVar("Model")

_PURGE_ID = TypeAdapter(PurgeId)


@dataclass(frozen=True, slots=True)
class Meta:
    """Metadata that all objects have."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: str
    """Creation time as RFC 3339 in UTC, so that sorting these strings sorts by time."""
    deleting: bool
    version: int = field(compare=False)
    """Resource version of the object; a higher number is newer."""

    @property
    def age_order(self) -> tuple[str, str]:
        """Sort key that puts the oldest object first, and orders objects of the same second by name."""
        return self.created, self.name


@dataclass(frozen=True, slots=True)
class Zone:
    """A TenantZone, with the spec as a ``ZoneConfig``, or the reason why the spec is invalid."""

    meta: Meta
    pool: str
    tenant: str
    config: ZoneConfig | None
    """Config of the zone for the engines; None if the spec is invalid."""
    invalid: str
    status: Body
    purge_invalid: str = ""
    """Why the id of the requested purge is invalid; empty if it is valid or no purge is requested."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A ZonePool, with the spec as a ``PoolConfig``, or the reason why the spec is invalid."""

    meta: Meta
    selector: Body
    admin_port: int
    blocks_per_engine: int | None
    """Engine size that the plan must assume, in blocks; None to use the reported sizes."""
    config: PoolConfig | None
    invalid: str
    not_enforced: tuple[str, ...]
    """Paths of fields that are set but not enforced."""
    status: Body
    advice: AdviceSpec
    service_account: str = ""
    """Service account whose tokens the engines send to the KV-cache manager; empty if the engines use no manager."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, whose labels determine which pools select it."""

    meta: Meta
    labels: Mapping[str, str]
    ip: str
    ready: bool
    config_hash: str
    """Config hash in the pod's annotation; the operator changes it to make kubelet sync the mounted config."""
    secrets: tuple[str, ...] = ()
    """Names of the Secrets that the pod mounts, sorted."""
    secrets_hash: str = ""
    """Hash of Secret versions in the pod's annotation; the operator changes it to make kubelet sync mounted Secrets."""
    host_network: bool = False
    """Whether the pod has its node's IP address, which other pods on the node may also have."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A Secret without its data."""

    meta: Meta
    version: str
    """UID and resource version, so that a new Secret of the same name has a different version."""


def read_zone(body: Body) -> Zone:
    """Parse a TenantZone from its JSON in the Kubernetes API."""
    meta, spec = read_meta(body), body.get("spec", {})
    tenant = spec.get("tenant", meta.name)
    purge = (body["metadata"].get("annotations") or {}).get(PURGE_ANNOTATION, "")
    _, purge_invalid = _build(lambda: _PURGE_ID.validate_python(purge))
    config, invalid = _build(
        lambda: zone_config(meta.name, meta.generation, tenant, spec, "" if purge_invalid else purge)
    )
    return Zone(
        meta=meta,
        pool=sys.intern(spec.get("pool", "")),
        tenant=tenant,
        config=config,
        invalid=invalid,
        status=_shared(body.get("status", {})),
        purge_invalid=purge_invalid,
    )


def share_config(found: Zone, known: Zone) -> Zone:
    """Returns ``found``. If both zones' configs are equal, the result has the config object of ``known``.

    Each status write causes a watch event with the zone, and comparing thousands of configs is faster if equal configs
    are the same object.
    """
    return replace(found, config=known.config) if found.config == known.config else found


def read_pool(body: Body, *, has_manager: bool = False) -> Pool:
    """Parse a ZonePool from its JSON in the Kubernetes API.

    ``has_manager`` says whether the operator has a KV-cache manager.
    """
    meta, spec = read_meta(body), body.get("spec", {})
    config, invalid = _build(lambda: pool_config(meta.namespace, meta.name, spec))
    advice, advice_invalid = _build(lambda: read_advice(spec.get("advice") or {}))
    return Pool(
        meta=meta,
        selector=spec.get("selector", {}),
        admin_port=spec.get("adminPort", DEFAULT_ADMIN_PORT),
        blocks_per_engine=spec.get("blocksPerEngine"),
        config=config if advice is not None else None,
        invalid=invalid or advice_invalid,
        not_enforced=pool_fields(spec, has_manager),
        status=_shared(body.get("status", {})),
        advice=advice or AdviceSpec(),
        service_account=(spec.get("tiers", {}).get("manager") or {}).get("serviceAccountName", ""),
    )


def read_pod(body: Body) -> Pod:
    """Parse a pod from its JSON in the Kubernetes API."""
    metadata, status = body["metadata"], body.get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or []}
    return Pod(
        meta=read_meta(body),
        labels=metadata.get("labels") or {},
        ip=status.get("podIP") or "",
        ready=conditions.get("Ready") == "True",
        config_hash=(metadata.get("annotations") or {}).get(CONFIG_HASH_ANNOTATION, ""),
        secrets=_mounted_secrets((body.get("spec") or {}).get("volumes") or ()),
        secrets_hash=(metadata.get("annotations") or {}).get(SECRETS_HASH_ANNOTATION, ""),
        host_network=bool((body.get("spec") or {}).get("hostNetwork")),
    )


def read_secret(body: Body) -> Secret:
    """Parse a Secret from its metadata in the Kubernetes API."""
    metadata = body["metadata"]
    return Secret(read_meta(body), f"{metadata['uid']}/{metadata['resourceVersion']}")


def _mounted_secrets(volumes: Sequence[Body]) -> tuple[str, ...]:
    names = set()
    for volume in volumes:
        names.add((volume.get("secret") or {}).get("secretName"))
        for source in (volume.get("projected") or {}).get("sources") or ():
            names.add((source.get("secret") or {}).get("name"))
    return tuple(sorted(sys.intern(name) for name in names if name))


def read_meta(body: Body) -> Meta:
    """Parse an object's metadata from its JSON in the Kubernetes API. A cluster-scoped object's namespace is empty."""
    metadata = body["metadata"]
    return Meta(
        namespace=sys.intern(metadata.get("namespace", "")),
        name=sys.intern(metadata["name"]),
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        created=sys.intern(metadata["creationTimestamp"]),
        deleting="deletionTimestamp" in metadata,
        version=int(metadata["resourceVersion"]),
    )


def _shared(value: Any) -> Any:
    """Returns the JSON value with interned strings, because most of the memory of statuses is repeated strings."""
    match value:
        case str():
            return sys.intern(value)
        case dict():
            return {sys.intern(key): _shared(found) for key, found in value.items()}
        case list():
            return [_shared(found) for found in value]
    return value


def _build(make: Callable[[], Model]) -> tuple[Model | None, str]:
    """Returns the result of ``make`` and an empty text, or None and the message of a validation error."""
    try:
        return make(), ""
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        return None, f"{path}: {message}" if path else message
    except ValueError as error:
        return None, str(error)

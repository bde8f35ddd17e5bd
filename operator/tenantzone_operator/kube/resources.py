"""Models of the objects that the operator watches, reduced to the fields that it needs.

The API server has validated the objects against the CRDs. Further checks do not raise exceptions, but set ``invalid``
to a message for the status.
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
    """Creation time as RFC 3339 in UTC, so that the texts sort by time."""
    deleting: bool
    version: int = field(compare=False)
    """Resource version, which is higher for newer versions."""

    @property
    def age_order(self) -> tuple[str, str]:
        """Sort key that puts the oldest object first, and orders objects of the same second by name."""
        return self.created, self.name


@dataclass(frozen=True, slots=True)
class Zone:
    """A TenantZone, with its spec as the contract's config, or the reason why it is invalid."""

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
    """A ZonePool, with its spec as the contract's config, or the reason why it is invalid."""

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
    """Hash of the config in the annotation that last made kubelet sync."""
    secrets: tuple[str, ...] = ()
    """Names of the Secrets that the pod mounts, sorted."""
    secrets_hash: str = ""
    """Hash of the Secrets' versions in the annotation that last made kubelet sync."""
    host_network: bool = False
    """Whether the pod has its node's IP address, which other pods on the node may also have."""


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
    """Returns the zone, with the known zone's config object if the two configs are equal.

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


def _mounted_secrets(volumes: Sequence[Body]) -> tuple[str, ...]:
    names = set()
    for volume in volumes:
        names.add((volume.get("secret") or {}).get("secretName"))
        for source in (volume.get("projected") or {}).get("sources") or ():
            names.add((source.get("secret") or {}).get("name"))
    return tuple(sorted(sys.intern(name) for name in names if name))


def read_meta(body: Body) -> Meta:
    """Parse an object's metadata from its JSON in the Kubernetes API, without a namespace if it is cluster-scoped."""
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
    """Returns the same JSON value with interned strings, because strings use most of the memory of statuses."""
    match value:
        case str():
            return sys.intern(value)
        case dict():
            return {sys.intern(key): _shared(found) for key, found in value.items()}
        case list():
            return [_shared(found) for found in value]
    return value


def _build(make: Callable[[], Model]) -> tuple[Model | None, str]:
    """Returns the model that ``make`` returns, or the message of its error."""
    try:
        return make(), ""
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        return None, f"{path}: {message}" if path else message
    except ValueError as error:
        return None, str(error)

"""The objects that the operator watches, read into what it needs of them.

The API server has checked them against the CRDs; what it could not check makes a zone or pool ``invalid`` with a
message for its status, never an exception.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tenantzone_contract.config import (
    CONFIG_HASH_ANNOTATION,
    PURGE_ANNOTATION,
    Fairness,
    Idle,
    Latency,
    Lending,
    PoolConfig,
    PurgeId,
    Queue,
    Release,
    RequestLimits,
    RequestPriority,
    Retention,
    SeatShare,
    TenantLevel,
    UnknownTenants,
    UnknownTenantTemplate,
    Watermarks,
    ZoneConfig,
)
from tenantzone_contract.identity import (
    SECRETS_HASH_ANNOTATION,
    ApiKeys,
    ClientCertificate,
    IdentityConfig,
    Jwt,
    Proof,
    SecretHeader,
    TrustedHeader,
)
from tenantzone_contract.report import DEFAULT_ADMIN_PORT
from tenantzone_operator.kube.durations import parse_duration
from tenantzone_operator.kube.not_enforced import pool_fields

Body = Mapping[str, Any]
"""An object as the API server sends it."""

Model = TypeVar("Model")

_PURGE_ID = TypeAdapter(PurgeId)

_SHARED = 1024
"""How many different terms of lending and idling are kept to be shared."""

_COPIED = ("priority", "reserved", "limit", "weight", "scrub")
"""Fields of a zone's spec whose names and values the contract has too."""


_LEVEL = ("name", "tenants", "reserved", "limit", "weight", "priority")
"""The same of a level of unknown tenants."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The metadata that all objects have."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: str
    """RFC 3339 in UTC, so it sorts by time."""
    deleting: bool
    version: int = field(compare=False)
    """Of this object's content: higher is newer."""

    @property
    def age_order(self) -> tuple[str, str]:
        """A sort key that puts the oldest object first, and orders by name within one second."""
        return self.created, self.name


@dataclass(frozen=True, slots=True)
class Zone:
    """A TenantZone, with its spec as the contract's config, or the reason why it is invalid."""

    meta: Meta
    pool: str
    tenant: str
    config: ZoneConfig | None
    """What the spec asks the engines for; None if it is invalid."""
    invalid: str
    status: Body
    purge_invalid: str = ""
    """What is wrong with the id of the purge that somebody asks for; empty: nothing, or nobody asks."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A ZonePool, with its spec as the contract's config, or the reason why it is invalid."""

    meta: Meta
    selector: Body
    admin_port: int
    blocks_per_engine: int | None
    """Of the engines that it is planned for; None: as many as they say."""
    config: PoolConfig | None
    invalid: str
    not_enforced: tuple[str, ...]
    """Fields that are set although nothing acts on them."""
    status: Body


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, whose labels tell which pools it serves."""

    meta: Meta
    labels: Mapping[str, str]
    ip: str
    ready: bool
    config_hash: str
    """Of the config that kubelet was last told to project."""
    secrets: tuple[str, ...] = ()
    """The names of the Secrets that are mounted into it, sorted."""
    secrets_hash: str = ""
    """Of the versions of these that kubelet was last told about."""


def read_zone(body: Body) -> Zone:
    """A TenantZone from its JSON in the API."""
    meta, spec = _meta(body), body.get("spec", {})
    tenant = spec.get("tenant", meta.name)
    purge = (body["metadata"].get("annotations") or {}).get(PURGE_ANNOTATION, "")
    _, purge_invalid = _build(lambda: _PURGE_ID.validate_python(purge))
    config, invalid = _build(lambda: _zone_config(meta, tenant, spec, "" if purge_invalid else purge))
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
    """The zone, with the config object of the known one if the two are equal.

    Each status that is written brings the zone anew; thousands of configs are compared faster where they are the same.
    """
    return replace(found, config=known.config) if found.config == known.config else found


def read_pool(body: Body) -> Pool:
    """A ZonePool from its JSON in the API."""
    meta, spec = _meta(body), body.get("spec", {})
    config, invalid = _build(lambda: _pool_config(meta, spec))
    return Pool(
        meta=meta,
        selector=spec.get("selector", {}),
        admin_port=spec.get("adminPort", DEFAULT_ADMIN_PORT),
        blocks_per_engine=spec.get("blocksPerEngine"),
        config=config,
        invalid=invalid,
        not_enforced=pool_fields(spec),
        status=_shared(body.get("status", {})),
    )


def read_pod(body: Body) -> Pod:
    """A pod from its JSON in the API."""
    metadata, status = body["metadata"], body.get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or []}
    return Pod(
        meta=_meta(body),
        labels=metadata.get("labels") or {},
        ip=status.get("podIP") or "",
        ready=conditions.get("Ready") == "True",
        config_hash=(metadata.get("annotations") or {}).get(CONFIG_HASH_ANNOTATION, ""),
        secrets=_mounted_secrets((body.get("spec") or {}).get("volumes") or ()),
        secrets_hash=(metadata.get("annotations") or {}).get(SECRETS_HASH_ANNOTATION, ""),
    )


def _mounted_secrets(volumes: Sequence[Body]) -> tuple[str, ...]:
    names = set()
    for volume in volumes:
        names.add((volume.get("secret") or {}).get("secretName"))
        for source in (volume.get("projected") or {}).get("sources") or ():
            names.add((source.get("secret") or {}).get("name"))
    return tuple(sorted(sys.intern(name) for name in names if name))


def _meta(body: Body) -> Meta:
    metadata = body["metadata"]
    return Meta(
        namespace=sys.intern(metadata["namespace"]),
        name=sys.intern(metadata["name"]),
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        created=sys.intern(metadata["creationTimestamp"]),
        deleting="deletionTimestamp" in metadata,
        version=int(metadata["resourceVersion"]),
    )


def _shared(value: Any) -> Any:
    """The same JSON value, with equal strings in memory once: statuses consist of them."""
    match value:
        case str():
            return sys.intern(value)
        case dict():
            return {sys.intern(key): _shared(found) for key, found in value.items()}
        case list():
            return [_shared(found) for found in value]
    return value


def _zone_config(meta: Meta, tenant: str, spec: Body, purge: str) -> ZoneConfig:
    return ZoneConfig(
        name=meta.name,
        tenant=tenant,
        generation=meta.generation,
        lending=_lending(spec.get("lending", {})),
        idle=_idle(spec.get("idle", {})),
        queue=Queue(**spec.get("queue", {})),
        request_limits=RequestLimits(**spec.get("requestLimits", {})),
        request_priority=RequestPriority(**spec.get("requestPriority", {})),
        latency=_latency(spec.get("latency", {})),
        fairness=Fairness(**spec.get("fairness", {})),
        retention=_retention(spec.get("retention", {})),
        seats=SeatShare(**spec.get("seats", {})),
        purge=sys.intern(purge),
        **_given(eviction_policy=spec.get("evictionPolicy"), **{field: spec.get(field) for field in _COPIED}),
    )


def _pool_config(meta: Meta, spec: Body) -> PoolConfig:
    unknown = spec.get("unknownTenants", {})
    template = unknown.get("template", {})
    return PoolConfig(
        namespace=meta.namespace,
        name=meta.name,
        unknown_tenants=UnknownTenants(
            template=UnknownTenantTemplate(
                idle=_idle(template.get("idle", {})),
                **_given(limit=template.get("limit"), priority=template.get("priority")),
            ),
            levels=tuple(_level(level) for level in unknown.get("levels", ())),
            **_given(mode=unknown.get("mode")),
        ),
        watermarks=Watermarks(**spec.get("watermarks", {})),
        identity=_identity(spec.get("identity", {})),
    )


def _identity(spec: Body) -> IdentityConfig | None:
    if not spec:
        return None
    header, jwt = spec.get("trustedHeader"), spec.get("jwt")
    return IdentityConfig(
        api_keys=ApiKeys() if "apiKeys" in spec else None,
        trusted_header=_trusted_header(header) if header is not None else None,
        jwt=_jwt(jwt) if jwt is not None else None,
    )


def _trusted_header(spec: Body) -> TrustedHeader:
    proof = spec.get("proof")
    return TrustedHeader(
        name=spec["name"],
        networks=tuple(spec.get("from", ())),
        proof=_proof(proof) if proof is not None else None,
    )


def _proof(spec: Body) -> Proof:
    secret, certificate = spec.get("secretHeader"), spec.get("clientCertificate")
    return Proof(
        secret_header=SecretHeader(name=secret["name"]) if secret is not None else None,
        client_certificate=ClientCertificate(subjects=certificate["subjects"]) if certificate is not None else None,
    )


def _jwt(spec: Body) -> Jwt:
    return Jwt(
        issuer=spec["issuer"],
        audiences=spec["audiences"],
        **_given(
            algorithms=spec.get("algorithms"),
            leeway_seconds=_seconds("identity.jwt.leeway", spec.get("leeway")),
            tenant_claim=spec.get("tenantClaim"),
        ),
    )


def _level(spec: Body) -> TenantLevel:
    return TenantLevel(**_given(**{field: spec.get(field) for field in _LEVEL}))


def _lending(spec: Body) -> Lending:
    return _shared_lending(*(spec.get(field) for field in ("lendable", "borrowers", "maxLoan", "grace")))


def _idle(spec: Body) -> Idle:
    release = spec.get("release", {})
    times = (spec.get(field) for field in ("after", "evictAfter", "forgetAfter"))
    return _shared_idle(*times, release.get("share"), release.get("every"))


# Most of thousands of zones have the same terms, and need them in memory once.
@lru_cache(_SHARED)
def _shared_lending(
    lendable: int | str | None, borrowers: str | None, max_loan: str | None, grace: str | None
) -> Lending:
    return Lending(
        **_given(
            lendable=lendable,
            borrowers=borrowers,
            max_loan_seconds=_seconds("lending.maxLoan", max_loan),
            grace_seconds=_seconds("lending.grace", grace),
        )
    )


@lru_cache(_SHARED)
def _shared_idle(
    after: str | None, evict_after: str | None, forget_after: str | None, share: str | None, every: str | None
) -> Idle:
    return Idle(
        **_given(
            after_seconds=_seconds("idle.after", after),
            evict_after_seconds=_seconds("idle.evictAfter", evict_after),
            forget_after_seconds=_seconds("idle.forgetAfter", forget_after),
            release=_release(share, every),
        )
    )


def _release(share: str | None, every: str | None) -> Release | None:
    if share is None and every is None:
        return None
    return Release(**_given(share=share, every_seconds=_seconds("idle.release.every", every)))


def _latency(spec: Body) -> Latency:
    return _shared_latency(spec.get("tokenTime"), spec.get("firstToken"))


@lru_cache(_SHARED)
def _shared_latency(token_time: str | None, first_token: str | None) -> Latency:
    return Latency(
        **_given(
            token_time_seconds=_seconds("latency.tokenTime", token_time),
            first_token_seconds=_seconds("latency.firstToken", first_token),
        )
    )


def _retention(spec: Body) -> Retention:
    return _shared_retention(spec.get("ttl"), spec.get("noStore"))


@lru_cache(_SHARED)
def _shared_retention(ttl: str | None, no_store: bool | None) -> Retention:
    return Retention(**_given(ttl_seconds=_seconds("retention.ttl", ttl), no_store=no_store))


def _seconds(path: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _given(**fields: Any) -> dict[str, Any]:
    """Those of these fields that the user has set, so that the contract's defaults hold for the others."""
    return {name: value for name, value in fields.items() if value is not None}


def _build(make: Callable[[], Model]) -> tuple[Model | None, str]:
    """The model that ``make`` makes, or the message of the error that says why it can't."""
    try:
        return make(), ""
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        return None, f"{path}: {message}" if path else message
    except ValueError as error:
        return None, str(error)

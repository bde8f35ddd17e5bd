"""Converts specs of TenantZones and ZonePools to the contract's config; unset fields get the contract's defaults."""

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic.alias_generators import to_camel

from tenantzone_contract.duration import parse_duration
from tenantzone_contract.quantity import parse_bytes
from tenantzone_contract.zone_config.config import PoolConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.identity import (
    ApiKeys,
    ClientCertificate,
    IdentityConfig,
    Jwt,
    Proof,
    SecretHeader,
    TrustedHeader,
)
from tenantzone_contract.zone_config.tiers import CpuTier, DiskTier, PoolTiers, TierShare
from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import (
    Fairness,
    Idle,
    LatencyTargets,
    Lending,
    QueueBounds,
    Release,
    RequestLimits,
    RequestPriority,
    Retention,
    SeatShare,
)

Body = Mapping[str, Any]
"""An object as the API server sends it."""

_SHARED = 1024
"""Maximum number of cached objects for each kind of terms. Zones with equal terms share one cached object."""

_CONVERTED = frozenset(
    (
        *("name", "tenant", "generation", "purge"),
        *("lending", "idle", "queue", "request_limits", "request_priority"),
        *("latency", "fairness", "retention", "seats", "tiers"),
    )
)
"""Fields of a zone's config that the spec does not have, or has as objects or lists."""

_COPIED = {name: to_camel(name) for name in ZoneConfig.model_fields if name not in _CONVERTED}
"""All other fields of a zone's config, with their names in the spec. The values in spec and config are equal."""

_LEVEL = ("name", "tenants", "reserved", "limit", "weight", "priority")
"""Fields of a level of unknown tenants. Names and values are the same in the spec and in the contract."""


def zone_config(name: str, generation: int, tenant: str, spec: Body, purge: str) -> ZoneConfig:
    """Returns the engine's config for a TenantZone.

    Raises:
        ValueError: the spec is invalid; the message names the field and says what to change.
    """
    return ZoneConfig(
        name=name,
        tenant=tenant,
        generation=generation,
        lending=_lending(spec.get("lending", {})),
        idle=_idle(spec.get("idle", {})),
        queue=QueueBounds(**spec.get("queue", {})),
        request_limits=RequestLimits(**spec.get("requestLimits", {})),
        request_priority=RequestPriority(**spec.get("requestPriority", {})),
        latency=_latency(spec.get("latency", {})),
        fairness=Fairness(**spec.get("fairness", {})),
        retention=_retention(spec.get("retention", {})),
        seats=SeatShare(**spec.get("seats", {})),
        tiers=tuple(_tier_share(share) for share in spec.get("tiers", ())),
        purge=sys.intern(purge),
        **_given(**{name: spec.get(spelling) for name, spelling in _COPIED.items()}),
    )


def pool_config(namespace: str, name: str, spec: Body) -> PoolConfig:
    """Returns the engine's config for a ZonePool.

    Raises:
        ValueError: the spec is invalid; the message names the field and says what to change.
    """
    unknown = spec.get("unknownTenants", {})
    template = unknown.get("template", {})
    return PoolConfig(
        namespace=namespace,
        name=name,
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
        tiers=_pool_tiers(spec.get("tiers", {})),
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


# There may be thousands of zones, most of them with the same terms. Keep equal terms in memory only once.
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


def _latency(spec: Body) -> LatencyTargets:
    return _shared_latency(spec.get("tokenTime"), spec.get("firstToken"))


@lru_cache(_SHARED)
def _shared_latency(token_time: str | None, first_token: str | None) -> LatencyTargets:
    return LatencyTargets(
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


def _tier_share(spec: Body) -> TierShare:
    tier = spec["tier"]
    return TierShare(
        tier=tier,
        **_given(
            reserved=_bytes(f"tiers[{tier}].reserved", spec.get("reserved")),
            limit=_bytes(f"tiers[{tier}].limit", spec.get("limit")),
            ttl_seconds=_seconds(f"tiers[{tier}].ttl", spec.get("ttl")),
            admission=spec.get("admission"),
        ),
    )


def _pool_tiers(spec: Body) -> PoolTiers:
    cpu, disk = spec.get("cpu"), spec.get("disk")
    return PoolTiers(
        cpu=CpuTier(bytes=_bytes("tiers.cpu.bytes", cpu["bytes"])) if cpu is not None else None,
        disk=DiskTier(folder=disk["folder"], bytes=_bytes("tiers.disk.bytes", disk["bytes"]))
        if disk is not None
        else None,
    )


def _bytes(path: str, amount: int | str | None) -> Any:
    """Returns an amount in bytes; a percentage is returned unchanged."""
    if amount is None or (isinstance(amount, str) and amount.endswith("%")):
        return amount
    try:
        return parse_bytes(amount)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _seconds(path: str, text: Any) -> float | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f'{path}: expected a duration such as "60s", got {text!r:.60}')
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _given(**fields: Any) -> dict[str, Any]:
    """Returns the fields that are not None. The user has not set the others, which get the contract's defaults."""
    return {name: value for name, value in fields.items() if value is not None}

"""Builders: a test gives only what it is about."""

from typing import Any

from msgspec import structs

from tenantzone_contract.reports.report import (
    AdminPortStatus,
    ApiServerReport,
    ConfigStatus,
    EngineReport,
    IdentityReport,
    Rejection,
    SaltKeyStatus,
    TierReport,
    dump_report,
    parse_report,
)
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.fitting import Grant, grants
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.views import view
from tenantzone_operator.kube.resources import Pod, Pool, Zone, read_pod, read_pool, read_zone
from tests.reported import SETTINGS

CLOSED = AdminPortStatus()
SHARED = SaltKeyStatus(id="0123456789abcdef")
NOW = "2026-01-01T00:00:00Z"


def body(name: str, *, age: int = 0, generation: int = 1, version: int = 1, **more: Any) -> dict[str, Any]:
    """An object as the API server sends it; a higher age is an older object."""
    metadata = {
        "namespace": "default",
        "name": name,
        "uid": f"uid-{name}",
        "generation": generation,
        "creationTimestamp": f"2026-01-01T00:{59 - age:02}:00Z",
        "resourceVersion": str(version),
    }
    return {"metadata": metadata | more.pop("metadata", {}), **more}


def zone(name: str, *, age: int = 0, generation: int = 1, status: Any = None, **spec: Any) -> Zone:
    return read_zone(body(name, age=age, generation=generation, spec={"pool": "demo"} | spec, status=status or {}))


def pool(status: Any = None, **spec: Any) -> Pool:
    selector = {"matchLabels": {"app": "vllm"}}
    return read_pool(body("demo", spec={"selector": selector} | spec, status=status or {}))


def pod(name: str = "engine-0", *, ip: str = "127.0.0.1", host_network: bool = False) -> Pod:
    status = {"podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}
    return read_pod(body(name, spec={"hostNetwork": host_network}, status=status))


def snapshot(generation: int, *zones: Zone) -> RuntimeConfig:
    entries = [zone.config for zone in zones]
    assert None not in entries
    return make_config(generation, PoolConfig(namespace="default", name="demo"), tuple(filter(None, entries)))


def entry(name: str, **fields: Any) -> ZoneConfig:
    return ZoneConfig(name=name, tenant=name, generation=1, **fields)


def observed(
    applied: RuntimeConfig | None,
    *,
    engine: str = "engine-0",
    blocks: int = 100,
    seats: int = 0,
    error: str = "",
    untrusted: bool = False,
    newest_generation: int | None = None,
    registered: tuple[ZoneReport, ...] = (),
    salt_key: SaltKeyStatus = SHARED,
    identity: tuple[str, str] | None = None,
    admin_port: AdminPortStatus = CLOSED,
    tiers: tuple[TierReport, ...] = (),
    api_servers: tuple[ApiServerReport, ...] | None = None,
    missing_api_servers: int = 0,
    **zones: Any,
) -> Observation:
    """An engine that has applied a snapshot and reports its zones; `acme={"cached": 3}` sets fields of one of them.

    Registered zones come first. Of its identity, the digest and the problem are given. ``error`` is the reason why it
    refuses a config, ``untrusted`` that the reason is the signature.
    """
    status = ConfigStatus()
    if applied is not None:
        status = ConfigStatus(applied_generation=applied.generation, applied_hash=applied.hash)
    if error:
        rejected = Rejection(error=error, untrusted=untrusted, newest_generation=newest_generation, unix_time=0.0)
        status = structs.replace(status, rejected=rejected)
    entries = applied.zones if applied is not None else ()
    reports = tuple(
        zone_report(zone.name, **_as_asked(zone, grant) | zones.get(zone.name, {}))
        for zone, grant in zip(entries, grants(entries, blocks), strict=True)
    )
    made = structs.replace(
        report(engine, blocks, status, registered + reports),
        seats=seats,
        salt_key=salt_key,
        admin_port=admin_port,
        tiers=tiers,
        api_servers=api_servers,
        missing_api_servers=missing_api_servers,
    )
    if identity is not None:
        reported = IdentityReport(kind="APIKeys", digest=identity[0], problem=identity[1])
        made = structs.replace(made, identity=reported)
    return Observation(engine, view(parse_report(dump_report(made))), blocks=blocks)


def _as_asked(zone: ZoneConfig, grant: Grant) -> dict[str, Any]:
    """The report of an engine that has granted this."""
    return {
        "tenant": zone.tenant,
        "generation": zone.generation,
        "reserved": grant.reserved,
        "limit": grant.limit,
        "awaited_reservation": grant.lacking,
    }


def zone_report(name: str, **fields: Any) -> ZoneReport:
    """An empty zone with the given fields."""
    empty = {"generation": 1, "state": "Evicted", "reserved": 0, "limit": 100, "in_use": 0, "cached": 0}
    return ZoneReport(**{"name": name, "tenant": name} | empty | fields)


def registered(tenant: str, **fields: Any) -> ZoneReport:
    """A zone that an engine made for a tenant without a TenantZone."""
    return zone_report(tenant, **{"generation": 0, "auto_registered": True} | fields)


def silent(engine: str = "engine-0") -> Observation:
    return Observation(engine, None, "no report from its admin port 9464 (the operator's log says why)")


def report(
    pod: str, blocks: int = 100, config: ConfigStatus | None = None, zones: tuple[ZoneReport, ...] = ()
) -> EngineReport:
    return EngineReport(
        engine_version="simulated",
        pod=pod,
        capacity_blocks=blocks,
        block_size_tokens=16,
        free_blocks=blocks,
        config=config or ConfigStatus(),
        **SETTINGS | {"salt_key": SHARED},
        zones=zones,
        started_unix_time=0.0,
        published_unix_time=1.0,
    )

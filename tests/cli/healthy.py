"""Facts about a set-up with nothing wrong, and the parts that they are made of."""

import copy
from dataclasses import replace
from typing import Any

from tenantzone_cli.api import ApiError
from tenantzone_cli.doctor.diagnosis import diagnose
from tenantzone_cli.doctor.facts import USER_RIGHTS, Clock, Facts
from tenantzone_cli.doctor.finding import Finding, Level
from tenantzone_cli.doctor.shipped import read_shipped
from tenantzone_cli.live import EngineAnswer
from tenantzone_cli.resources import Pod, Pool, Zone, read_pool, read_zone, unix_time
from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION, PoolConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tests.cli.reports import answer, engine_report
from tests.operator.objects import body

SHIPPED = read_shipped()
NOW = unix_time("2026-01-01T01:00:00Z") or 0.0
CONFIG = make_config(3, PoolConfig(namespace="shop", name="demo"), ())
FORBIDDEN, MISSING, BROKEN = ApiError(403, "no"), ApiError(404, "not found"), ApiError(500, "broken")
KEY = ("shop", "demo")
ENGINES, POOL, CONFIG_SUBJECT = "engines shop/demo", "pool shop/demo", "config shop/demo"


def definition(schema: Any, *, established: str = "True", version: str = "v1alpha1") -> dict[str, Any]:
    entry = {"name": version, "served": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "spec": {"versions": [entry]},
        "status": {"conditions": [{"type": "Established", "status": established}]},
    }


def schema_of_zones() -> dict[str, Any]:
    return copy.deepcopy(SHIPPED.definitions["tenantzones.tenantzone.io"]["v1alpha1"])


def lease(**spec: Any) -> dict[str, Any]:
    full = {"holderIdentity": "operator-0", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:59:58.000000Z"}
    return {"spec": full | spec}


def deployment(wanted: int, ready: int) -> dict[str, Any]:
    return {"spec": {"replicas": wanted}, "status": {"readyReplicas": ready} if ready else {}}


def pool(accepted: str = "True", generation: int = 1, **status: Any) -> Pool:
    spec = {"selector": {"matchLabels": {"app": "vllm"}}}
    counts = {
        "enginesReady": 1,
        "enginesAcknowledged": 1,
        "zonesAccepted": 1,
        "zonesRejected": 0,
        "capacityBlocks": 100,
    }
    conditions = [
        {"type": "Accepted", "status": accepted, "reason": "Invalid", "message": "watermarks: no"},
        {"type": "Programmed", "status": accepted, "reason": "Pending", "message": "waiting for engine-0"},
    ]
    full = {"observedGeneration": 1, "configHash": CONFIG.hash, "conditions": conditions} | counts | status
    return read_pool(
        body("demo", age=30, generation=generation, metadata={"namespace": "shop"}, spec=spec, status=full)
    )


def zone(name: str = "acme", ready: str = "True", generation: int = 1, **status: Any) -> Zone:
    full = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": ready}]} | status
    metadata = {"namespace": "shop"}
    return read_zone(body(name, age=30, generation=generation, metadata=metadata, spec={"pool": "demo"}, status=full))


def pod(name: str = "engine-0", trouble: str = "", reported: str = CONFIG.hash) -> Pod:
    return Pod("shop", name, not trouble, trouble, {CONFIG_HASH_ANNOTATION: reported})


def config_map(text: str | None = None, **files: dict[str, str]) -> dict[str, Any]:
    fields = [{"manager": "tenantzone-operator", "time": "2026-01-01T00:57:00Z"}]
    return {"metadata": {"managedFields": fields}, "data": {"config.json": text or dump_config(CONFIG)}, **files}


def heard(*, published: float = NOW, asked_at: float = NOW, **config: Any) -> EngineAnswer:
    status = ConfigStatus(**{"applied_generation": 3, "applied_hash": CONFIG.hash} | config)
    return answer(engine_report(config=status, published=published), asked_at=asked_at)


HEALTHY = Facts(
    namespace="shop",
    operator_namespace="tenantzone-system",
    shipped=SHIPPED,
    server="v1.36.3",
    clock=Clock(NOW, NOW, NOW + 0.1),
    definitions={name: definition(versions["v1alpha1"]) for name, versions in SHIPPED.definitions.items()},
    served={"resources": [{"name": name.partition(".")[0]} for name in SHIPPED.definitions]},
    user_rights=dict.fromkeys(USER_RIGHTS, True),
    operator_rights=dict.fromkeys(SHIPPED.rights, True),
    deployment=deployment(2, 2),
    operator_pods=[],
    lease=lease(),
    zones=[zone()],
    pools=[pool()],
    configs={KEY: config_map()},
    pods={KEY: [pod()]},
    answers=[heard()],
)


def troubles(**changes: Any) -> list[Finding]:
    """Findings about these facts with some changed."""
    return [finding for finding in diagnose(replace(HEALTHY, **changes)) if finding.level is not Level.OK]

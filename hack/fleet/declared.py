"""The objects that declare the fleet, as its administrator would write them."""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from hack.demo.samples import engine_pod
from hack.harness.manager_access import AUDIENCE

_API_VERSION: Final = "tenantzone.io/v1alpha1"
_POOL: Final = "chat"
TENANTS: Final = ("acme", "burst")
SERVICE_ACCOUNT: Final = "vllm-chat"
"""The service account of the engines' pods."""
STORAGE: Final = "bucket"
GROUP: Final = "chat"
CPU_TIER: Final = "8Mi"
"""As large as the blocks of the tiny model: a flood replaces the contents of both."""
_TOKEN_FOLDER: Final = "/var/run/secrets/tenantzone/manager"
_LABELS: Final = {"app": "vllm-chat"}


def pool_and_zones(namespace: str) -> str:
    """Returns the pool, and a TenantZone of each tenant without reserved blocks: the story is about shared storage."""
    pool = {
        "selector": {"matchLabels": _LABELS},
        "tiers": {"cpu": {"bytes": CPU_TIER}, "manager": {"serviceAccountName": SERVICE_ACCOUNT}},
    }
    zones = [_object("TenantZone", name, namespace, pool=_POOL, reserved=0) for name in TENANTS]
    return _text(_object("ZonePool", _POOL, namespace, **pool), *zones)


def storage(options: Mapping[str, str]) -> str:
    """The bucket, by the words in which a KVStorage says it, too."""
    return _text(_object("KVStorage", STORAGE, type="S3", s3=dict(options)))


def group(namespace: str, floor_bytes: int, flood_bytes: int) -> str:
    """Returns the group of the pool's zones: acme's floor is guaranteed, and burst gets the rest."""
    acme, burst = ({"namespace": namespace, "name": name} for name in TENANTS)
    return _text(
        _object(
            "KVCacheGroup",
            GROUP,
            pools=[{"namespace": namespace, "name": _POOL}],
            zones=[
                acme | {"types": [{"type": "S3", "reserved": floor_bytes}]},
                burst | {"types": [{"type": "S3", "limit": flood_bytes}]},
            ],
            storages=[STORAGE],
            quota={"limit": floor_bytes + flood_bytes, "watermark": "90%"},
        )
    )


def pod(name: str) -> dict[str, Any]:
    """An engine's pod, with a token of its service account that only the manager takes."""
    made = engine_pod(name, _POOL, _LABELS)
    token = {"path": "token", "audience": AUDIENCE, "expirationSeconds": 3600}
    made["spec"]["serviceAccountName"] = SERVICE_ACCOUNT
    made["spec"]["volumes"].append(
        {"name": "manager-token", "projected": {"sources": [{"serviceAccountToken": token}]}}
    )
    mounts = made["spec"]["containers"][0]["volumeMounts"]
    mounts.append({"name": "manager-token", "mountPath": _TOKEN_FOLDER, "readOnly": True})
    return made


def _object(kind: str, name: str, namespace: str | None = None, **spec: Any) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace is not None else {}
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": name, **where}, "spec": spec}


def _text(*objects: Mapping[str, Any]) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False)

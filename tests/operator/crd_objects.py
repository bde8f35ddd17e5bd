"""Objects of each kind, as kubectl takes them, and the API server's errors for refused ones."""

import json
from typing import Any

from hack.controlplane import Cluster


def manifest(kind: str, spec: dict[str, Any], name: str = "sample") -> str:
    return json.dumps({"apiVersion": "tenantzone.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def zone(**spec: Any) -> str:
    return manifest("TenantZone", {"pool": "demo"} | spec)


def pool(**spec: Any) -> str:
    return manifest("ZonePool", {"selector": {"matchLabels": {"app": "vllm"}}} | spec)


def storage(kind: str, **spec: Any) -> str:
    return manifest("KVStorage", {"type": kind} | spec)


def group(**spec: Any) -> str:
    return manifest("KVCacheGroup", {"storages": ["nfs"]} | spec)


def refused(cluster: Cluster, body: str) -> str:
    """The API server's error for an object, which it must refuse."""
    answer = cluster.kubectl("apply", "--dry-run=server", "--filename=-", stdin=body, check=False)
    assert answer.returncode != 0
    return answer.stderr

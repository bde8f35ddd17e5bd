"""The API server as seen by a holder of the operator's token."""

import json
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hack.controlplane import Cluster, ControlPlane
from tests.operator.kube import Kube, eventually, proxied
from tests.operator.lease import LEASE_PATH, NAMESPACE

LABELS = {"app.kubernetes.io/managed-by": "tenantzone-operator", "tenantzone.io/pool": "demo"}
OWNER = {"apiVersion": "tenantzone.io/v1alpha1", "kind": "ZonePool", "name": "demo", "uid": "of-a-pool"}
AS_MANAGER = "?fieldManager=tenantzone-operator"
OF_OTHERS = "changes no finalizer, label or annotation but its own"
"""The guard's message about these changes."""


@contextmanager
def stolen_token(cluster: Cluster, operator_kubeconfig: Path) -> Iterator[Kube]:
    """Runs for as long as the block, and only once the guard is in force."""
    assert isinstance(cluster, ControlPlane), "a cluster that was named has no such user"
    as_operator = Cluster(operator_kubeconfig, cluster.server, cluster.kubectl_program)
    with proxied(as_operator) as made:
        path, lease = LEASE_PATH.rpartition("/")[0], {"metadata": {"name": "another", "namespace": NAMESPACE}}
        eventually(lambda: "no Lease but its own" in refusal(made, "POST", path, lease))
        yield made


def refusal(kube: Kube, method: str, path: str, body: Any = None, content_type: str = "application/json") -> str:
    """The API server's error; empty if it accepts the request."""
    try:
        kube.call(method, path, body, content_type)
    except urllib.error.HTTPError as error:
        return str(json.load(error)["message"])
    return ""


def patched(kube: Kube, path: str, change: Any) -> str:
    """The same for a merge patch."""
    return refusal(kube, "PATCH", path, change, "application/merge-patch+json")

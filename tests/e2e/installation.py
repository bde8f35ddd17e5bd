"""CRDs and operator, installed from the manifests as a user would."""

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.controlplane import Cluster
from tests.e2e.kustomizing import PROJECT, write_kustomization
from tests.waiting import await_that

NAMESPACE = "tenantzone-system"
OPERATOR = "deployment/tenantzone-operator"
_LABEL = "app.kubernetes.io/name=tenantzone-operator"


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation of CRDs and operator.

    Args:
        cluster: the cluster.
        image: the operator's image, with its tag.
        folder: a folder for the kustomization.
        project: the tree of the CRDs and manifests.
    """

    cluster: Cluster
    image: str
    folder: Path
    project: Path = PROJECT

    def install(self) -> None:
        """Installs the CRDs first: none of our objects can be applied without them."""
        crds = str(self.project / "crds")
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", crds)
        self.cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "--filename", crds)
        self.cluster.kubectl("apply", "--kustomize", str(self._kustomization))
        self.await_rollout()

    def uninstall(self) -> None:
        """Removes the operator, then the CRDs, and with them all remaining zones."""
        self.cluster.kubectl("delete", "--kustomize", str(self._kustomization), "--timeout=120s")
        self.cluster.kubectl("delete", "--filename", str(self.project / "crds"), "--timeout=60s")

    @property
    def _kustomization(self) -> Path:
        name, _, tag = self.image.rpartition(":")
        images = [{"name": "tenantzone-operator", "newName": name, "newTag": tag}]
        return write_kustomization(self.folder, self.project / "manifests", images=images)

    def await_rollout(self) -> None:
        self.kubectl("rollout", "status", OPERATOR, "--timeout=120s")

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("--namespace", NAMESPACE, *arguments).stdout

    def get(self, name: str) -> dict[str, Any]:
        """An object, by kind and name."""
        return dict(json.loads(self.kubectl("get", name, "-o", "json")))

    def scale(self, replicas: int) -> None:
        """Changes the number of operators, and waits until that many are ready and the others are gone."""
        self.kubectl("scale", OPERATOR, f"--replicas={replicas}")
        self.await_rollout()
        if replicas == 0:
            self.kubectl("wait", "--for=delete", "pod", f"--selector={_LABEL}", "--timeout=60s")

    def evict(self, pod: str) -> None:
        """Requests a pod's eviction, as a drain of its node does.

        Raises:
            ClusterError: a disruption budget forbids it now.
        """
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
        self.cluster.kubectl("create", f"--raw={path}", "--filename=-", stdin=json.dumps(eviction))

    @contextmanager
    def forwarded(self, port: int) -> Iterator[str]:
        """The local address of a port of the operator's pods, by kubectl's port-forward."""
        command = ("port-forward", "--namespace", NAMESPACE, OPERATOR, f":{port}")
        with tempfile.NamedTemporaryFile("w+") as reported, self.cluster.popen(*command, stdout=reported) as forwarding:
            try:
                await_that(lambda: "Forwarding from" in Path(reported.name).read_text(), "kubectl forwards the port")
                local = re.search(r"127\.0\.0\.1:(\d+)", Path(reported.name).read_text())
                assert local is not None
                yield f"http://127.0.0.1:{local[1]}/"
            finally:
                forwarding.terminate()

    def pods(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", f"--selector={_LABEL}", "-o", "json"))[
            "items"
        ]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def leader(self) -> str:
        """The pod that holds the Lease; empty if none does."""
        holder = self.get("lease/tenantzone-operator")["spec"].get("holderIdentity") or ""
        return str(holder.partition("_")[0])

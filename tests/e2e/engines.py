"""Two CPU engines in pods, from the shipped manifests.

An image with vLLM in it would weigh gigabytes. So here the engine's environment is this project's own, on the node's
disk: read-only volumes at the same paths, behind claims, because the strictest pod security allows no host paths.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controlplane import Cluster
from demo import tiny_model
from node.images import HOST_IMAGE
from tenantzone_contract.report import REPORT_PATH, EngineReport, parse_report
from tests.e2e.kustomizing import PROJECT, write_kustomization
from tests.e2e.waiting import await_that

NAMESPACE = "serving"
BLOCKS = 256
_START = "--timeout=900s"


@dataclass(frozen=True, slots=True)
class Engines:
    """
    Args:
        cluster: where.
        folder: for the model and the kustomization; pods read it.
    """

    cluster: Cluster
    folder: Path

    def deploy(self, *, replicas: int) -> None:
        """Bring them up with the sample pool and zones, and wait until all are ready."""
        self._make_model()
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }
        self.apply(namespace, *self._volumes())
        self.cluster.kubectl("apply", "--kustomize", str(self._kustomization(replicas)))
        self.await_rollout()

    def remove(self) -> None:
        self.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s")
        self.cluster.kubectl("delete", "persistentvolume", *(f"{NAMESPACE}-{name}" for name in self._folders()))

    def apply(self, *objects: dict[str, Any]) -> None:
        self.cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("--namespace", NAMESPACE, *arguments).stdout

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", "deployment/vllm", f"--replicas={replicas}")
        self.await_rollout()

    def await_rollout(self) -> None:
        self.kubectl("rollout", "status", "deployment/vllm", _START)

    def answers(self) -> bool:
        """Whether the API server does."""
        return self.cluster.kubectl("get", "--raw=/readyz", check=False).returncode == 0

    def pods(self) -> list[str]:
        """Those that are ready and stay, by name."""
        items = json.loads(self.kubectl("get", "pods", "--selector=app=vllm", "-o", "json"))["items"]
        return sorted(pod["metadata"]["name"] for pod in items if _is_ready(pod))

    def container(self, pod: str) -> str:
        """The id of its container, as containerd knows it."""
        shown = self.kubectl("get", f"pod/{pod}", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
        return shown.removeprefix("containerd://")

    def report(self, pod: str) -> EngineReport:
        """What an engine says of itself, by way of the API server."""
        return parse_report(
            self.kubectl("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:9464/proxy{REPORT_PATH}")
        )

    def reserve(self, zone: str, blocks: int) -> None:
        """Change a zone's reservation, and wait until each engine that is ready enforces it by its own report."""
        self.kubectl("patch", f"tenantzone/{zone}", "--type=merge", f'--patch={{"spec":{{"reserved":{blocks}}}}}')
        generation = int(self.kubectl("get", f"tenantzone/{zone}", "-o", "jsonpath={.metadata.generation}"))
        for pod in self.pods():
            await_that(lambda pod=pod: self._enforces(pod, zone, generation, blocks), f"{pod} enforces {blocks} blocks")

    def _enforces(self, pod: str, name: str, generation: int, reserved: int) -> bool:
        zones = {zone.name: zone for zone in self.report(pod).zones}
        return name in zones and (zones[name].generation, zones[name].reserved) == (generation, reserved)

    def _make_model(self) -> None:
        model = self._folders()["model"]
        if not model.exists():
            tiny_model.make(model)
        for path in (self.folder, model, *model.iterdir()):
            # Pods run as somebody else.
            path.chmod(0o755 if path.is_dir() else 0o644)

    def _folders(self) -> dict[str, Path]:
        return {
            "machine": Path("/usr"),
            "python": Path(sys.base_prefix),
            "project": PROJECT,
            "environment": Path(sys.prefix),
            "model": self.folder / "model",
        }

    def _volumes(self) -> list[dict[str, Any]]:
        objects: list[dict[str, Any]] = []
        size = {"storage": "1Gi"}
        for name, folder in self._folders().items():
            volume = {
                "capacity": size,
                "accessModes": ["ReadOnlyMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder), "type": "Directory"},
                "claimRef": {"namespace": NAMESPACE, "name": name},
            }
            claim = {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": f"{NAMESPACE}-{name}",
                "resources": {"requests": size},
            }
            objects += [
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"{NAMESPACE}-{name}"},
                    "spec": volume,
                },
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": name, "namespace": NAMESPACE},
                    "spec": claim,
                },
            ]
        return objects

    def _kustomization(self, replicas: int) -> Path:
        folders = self._folders()
        arguments = [
            "serve", str(folders["model"]), "--served-model-name=tiny",
            "--zones-config=/etc/tenantzone/config", "--tenant-keys=/etc/tenantzone/keys", "--admin-port=9464",
            f"--num-gpu-blocks-override={BLOCKS}", "--block-size=32", "--dtype=float32", "--enforce-eager",
            "--max-model-len=4096", "--enable-prompt-tokens-details",
        ]  # fmt: skip
        variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HOME": "/cache"}
        container = {
            "name": "engine",
            "imagePullPolicy": "Never",
            "command": [sys.executable, "-m", "tenantzone_runtime"],
            "args": arguments,
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
            "volumeMounts": [
                {"name": name, "mountPath": str(folder), "readOnly": True} for name, folder in folders.items()
            ],
        }
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": True}} for name in folders]
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "vllm"},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [container], "volumes": volumes}}},
        }
        name, _, tag = HOST_IMAGE.rpartition(":")
        return write_kustomization(
            self.folder / "kustomization",
            PROJECT / "manifests" / "overlays" / "cpu-demo",
            namespace=NAMESPACE,
            images=[{"name": "tenantzone-engine-cpu", "newName": name, "newTag": tag}],
            patches=[{"patch": yaml.safe_dump(deployment)}],
        )


def _is_ready(pod: dict[str, Any]) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

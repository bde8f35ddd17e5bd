"""CPU engines in pods, from the shipped manifests, with a model of random weights."""

import json
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane import Cluster
from hack.demo.models import tiny_model
from tenantzone_contract.keys.admin_token import ADMIN_TOKEN_HEADER, TOKEN_FILE, admin_secret_name
from tenantzone_contract.reports.report import REPORT_PATH, EngineReport, parse_report
from tests.e2e import host_environment
from tests.e2e.kustomizing import PROJECT, write_kustomization
from tests.operator.kube import Kube, eventually
from tests.waiting import await_that

NAMESPACE = "serving"
BLOCKS = 256
MODEL = "/model"
_START_SECONDS = 900

_ARGUMENTS_PATH = "/spec/template/spec/containers/0/args"
_ARGUMENTS = [
    {"op": "replace", "path": f"{_ARGUMENTS_PATH}/1", "value": MODEL},
    *(
        {"op": "add", "path": f"{_ARGUMENTS_PATH}/-", "value": argument}
        for argument in (
            *("--served-model-name=tiny", "--dtype=float32"),
            *(f"--num-gpu-blocks-override={BLOCKS}", "--block-size=32"),
        )
    ),
]
"""Another model, and blocks for it. All other arguments are the shipped ones."""


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines in a cluster.

    Args:
        cluster: the cluster.
        kube: the same, for what is polled many times a second.
        folder: a folder for the model and the kustomization.
        image: an image with vLLM; without one, vLLM is the node's own.
    """

    cluster: Cluster
    kube: Kube
    folder: Path
    image: str | None = None

    def deploy(self, *, replicas: int) -> None:
        """Deploys them with the sample pool and zones, and waits until all are ready."""
        if not self.image:
            host_environment.check()
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }
        self.apply(namespace, *([] if self.image else host_environment.objects(NAMESPACE)))
        model = self.folder / "model"
        tiny_model.make(model)
        self.kubectl("create", "configmap", "model", f"--from-file={model}")
        self.cluster.kubectl("apply", "--kustomize", str(self._kustomization(replicas)))
        self.await_rollout()

    def remove(self) -> None:
        self.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s")
        if not self.image:
            self.cluster.kubectl("delete", "persistentvolume", *host_environment.persistent_volumes(NAMESPACE))

    def apply(self, *objects: dict[str, Any]) -> None:
        self.cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("--namespace", NAMESPACE, *arguments).stdout

    def get(self, name: str) -> dict[str, Any]:
        """An object, by kind and name."""
        return dict(json.loads(self.kubectl("get", name, "-o", "json")))

    def scale(self, replicas: int) -> None:
        """Changes their number, and waits until that many are ready and the others are gone."""
        self.kubectl("scale", "deployment/vllm", f"--replicas={replicas}")
        self.await_rollout()

    def await_rollout(self, deployment: str = "vllm") -> None:
        """Waits until all of its pods are new and ready, and the old ones are gone."""
        self.kubectl("rollout", "status", f"deployment/{deployment}", f"--timeout={_START_SECONDS}s")
        await_that(lambda: len(self._pods()) == len(self.pods()), "pods that leave are gone")

    def answers(self) -> bool:
        """Whether the API server answers."""
        return self.cluster.kubectl("get", "--raw=/readyz", check=False).returncode == 0

    def pods(self) -> list[str]:
        """The names of the pods that are ready and not being deleted."""
        return sorted(pod["metadata"]["name"] for pod in self._pods() if _is_ready(pod))

    def await_pods(self, number: int) -> None:
        await_that(lambda: len(self.pods()) == number, f"{number} engines are ready", seconds=_START_SECONDS)

    def container(self, pod: str) -> dict[str, Any]:
        """Kubelet's status of its container."""
        (status,) = self.get(f"pod/{pod}")["status"]["containerStatuses"]
        return dict(status)

    def report(self, pod: str) -> EngineReport:
        """An engine's report, through the API server."""
        secret = self.get(f"secret/{admin_secret_name('demo')}")
        shown = {ADMIN_TOKEN_HEADER: b64decode(secret["data"][TOKEN_FILE]).decode()}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:9464/proxy{REPORT_PATH}"
        return parse_report(self.kube.text(path, **shown))

    def rows(self, zone: str) -> list[str]:
        """The engines in a zone's status."""
        return sorted(row["pod"] for row in self.get(f"tenantzone/{zone}")["status"].get("engines", []))

    def reserved(self, zone: str) -> dict[str, int | None]:
        """The reservation in blocks that each ready engine enforces for a zone; None if it has no such zone."""
        reports = {pod: self.report(pod) for pod in self.pods()}
        return {pod: _reserved(report, zone) for pod, report in reports.items()}

    def reserve(self, zone: str, blocks: int) -> None:
        """Changes a zone's reservation, and waits until each ready engine enforces it."""
        self.await_enforced(zone, blocks, self.patch(zone, blocks), self.pods())

    def patch(self, zone: str, blocks: int) -> int:
        """Changes a zone's reservation. Returns the zone's new generation."""
        patch = f'--patch={{"spec":{{"reserved":{blocks}}}}}'
        shown = self.kubectl("patch", f"tenantzone/{zone}", "--type=merge", patch, "-o=jsonpath={.metadata.generation}")
        return int(shown)

    def give_key(self, tenant: str, keys: str) -> None:
        """Writes the content of a tenant's file of keys into the Secret."""
        patch = json.dumps({"stringData": {tenant: keys}})
        self.kubectl("patch", "secret/tenant-keys", "--type=merge", f"--patch={patch}")

    def await_enforced(self, zone: str, blocks: int, generation: int, pods: list[str]) -> None:
        """Waits until each engine reports that it enforces a reservation."""
        for pod in pods:
            eventually(lambda pod=pod: self._enforces(pod, zone, generation, blocks))

    def _enforces(self, pod: str, name: str, generation: int, reserved: int) -> bool:
        zones = {zone.name: zone for zone in self.report(pod).zones}
        return name in zones and (zones[name].generation, zones[name].reserved) == (generation, reserved)

    def _pods(self) -> list[dict[str, Any]]:
        return list(json.loads(self.kubectl("get", "pods", "--selector=app=vllm", "-o", "json"))["items"])

    def _kustomization(self, replicas: int) -> Path:
        image = self.image or host_environment.IMAGE
        name, _, tag = image.rpartition(":")
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "vllm"},
            "spec": {"replicas": replicas, "template": {"spec": self._template()}},
        }
        return write_kustomization(
            self.folder / "kustomization",
            PROJECT / "manifests" / "overlays" / "cpu-demo",
            namespace=NAMESPACE,
            images=[{"name": "tenantzone-engine-cpu", "newName": name, "newTag": tag}],
            patches=[
                {"patch": yaml.safe_dump(deployment)},
                {"patch": yaml.safe_dump(_ARGUMENTS), "target": {"kind": "Deployment", "name": "vllm"}},
            ],
        )

    def _template(self) -> dict[str, Any]:
        """The differences from the shipped one: the model, and a small machine."""
        variables = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            # A pod has no compiled code of earlier engines: the warm-up would compile for 15 seconds at each start.
            "TENANTZONE_WARM_UP": "0",
        }
        container = {
            "name": "engine",
            "imagePullPolicy": "Never",
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
            "volumeMounts": [{"name": "model", "mountPath": MODEL, "readOnly": True}],
        }
        volumes: list[dict[str, Any]] = [{"name": "model", "configMap": {"name": "model"}}]
        if not self.image:
            container["command"] = [*host_environment.COMMAND, "-m", "tenantzone_runtime"]
            container["env"] += [{"name": "HOME", "value": "/cache"}]
            container["volumeMounts"] += host_environment.mounts()
            volumes += host_environment.volumes()
        return {"containers": [container], "volumes": volumes}


def _reserved(report: EngineReport, name: str) -> int | None:
    return next((zone.reserved for zone in report.zones if zone.name == name), None)


def _is_ready(pod: dict[str, Any]) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

"""The demo's stand-in for kubelet, for a real engine that is a process of the tests."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hack.controlplane import Cluster
from tests.engine.real_engine import API_PORT, RealEngine
from tests.operator.fleet import pod_manifest

_REPOSITORY = Path(__file__).parents[1]


def engine_pod(name: str, labels: dict[str, str], pool: str) -> dict[str, Any]:
    """A pod into whose config folder the pool's ConfigMap is projected."""
    pod: dict[str, Any] = pod_manifest(name, labels)
    projected = {"name": f"tenantzone-{pool}", "optional": True}
    pod["spec"]["volumes"] = [{"name": "config", "configMap": projected}]
    return pod


@contextmanager
def kubelet(cluster: Cluster, namespace: str, pod: str, engine: RealEngine, log: Path) -> Iterator[None]:
    """For as long as the block runs, the pod is ready when the engine is, and the engine reads the projected files."""
    command = [
        *(sys.executable, "-m", "hack.demo.kubelet", "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace),
        *("--pod", pod, "--volumes", str(engine.config_folder.parent), "--ip", engine.address),
        *("--health", f"http://{engine.address}:{API_PORT}/health"),
    ]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=_REPOSITORY)
        try:
            yield
        finally:
            process.terminate()
            process.wait()
            _empty(engine.config_folder)


def _empty(folder: Path) -> None:
    """Leaves the folder as after the end of a pod: an old projection does not hide plain files written next."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

"""The real operator, with the rights that the manifests give it."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import Cluster, ControlPlane
from hack.harness.proxy import Proxy, proxied_for_operator
from hack.ports import free_ports
from tests.operator.admin_server import Engine, listening
from tests.operator.kube import Kube, eventually, proxied
from tests.operator.scrape import Scrape
from tests.operator.stolen_token import stolen_token
from tests.operator.watched_pods import Pods, watched_through
from tests.operator.world import World, world_in

MANIFESTS = Path(__file__).parents[2] / "manifests"
SERVICE_ACCOUNT = "system:serviceaccount:tenantzone-system:tenantzone-operator"


class Operator:
    """The operator as a process.

    Args:
        kubeconfig: the config of the user as whom it runs.
        log: a file to which its output is appended.
        flags: further flags. By default it holds no Lease, so that after a kill it need not wait for its own to expire.
        namespace: the only namespace that it serves; None: all.
    """

    def __init__(self, kubeconfig: Path, log: Path, *flags: str, namespace: str | None = None) -> None:
        self._port, self._metrics_port = free_ports(2)
        self._command = [
            *(sys.executable, "-m", "tenantzone_operator", "--kubeconfig", str(kubeconfig)),
            *(("--all-namespaces",) if namespace is None else ("--namespace", namespace)),
            *("--probe-host", "127.0.0.1", "--probe-port", str(self._port)),
            *("--metrics-host", "127.0.0.1", "--metrics-port", str(self._metrics_port)),
            *(flags or ("--no-leader-elect",)),
        ]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env={**os.environ, **environment})

    def await_running(self) -> None:
        """Waits until everything was listed, whichever replica leads."""
        eventually(self.is_ready)

    def await_leading(self) -> None:
        eventually(self.is_leading)

    def kill(self) -> None:
        """Kills it without a chance to clean up."""
        self.send(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def stop(self) -> int:
        """Stops it as Kubernetes stops a pod. Returns the exit code."""
        self.send(signal.SIGTERM)
        assert self._process is not None
        return self._process.wait(timeout=20)

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def health(self) -> dict[str, Any]:
        """Returns the operator's health.

        Raises:
            OSError: it is not healthy, or it does not answer.
        """
        return self._get("/healthz")

    def is_ready(self) -> bool:
        return self._get("/readyz") is not None

    def is_leading(self) -> bool:
        return bool(self.health()["leading"])

    def scrape(self) -> Scrape:
        """Scrapes the operator's metrics.

        Raises:
            OSError: it does not answer.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=5) as answer:
            return Scrape(answer.read().decode())

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
            return json.load(answer)

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """An engine's admin server, without the engine."""
    async with listening() as made:
        yield made


@pytest.fixture(scope="session")
def operator_kubeconfig(control_plane: Cluster) -> Path:
    """The kubeconfig of a user with the shipped role, where users can be made; otherwise that of the given cluster."""
    if not isinstance(control_plane, ControlPlane):
        return control_plane.kubeconfig
    for name in ("namespace.yaml", "rbac.yaml", "guard.yaml"):
        control_plane.kubectl("apply", "--filename", str(MANIFESTS / "base" / name))
    return control_plane.user_kubeconfig(SERVICE_ACCOUNT)


@pytest.fixture(scope="module")
def operator(operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One operator for all namespaces. A test that ends it starts it again."""
    running = Operator(operator_kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log")
    running.start()
    running.await_running()
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="session")
def kube(control_plane: Cluster) -> Iterator[Kube]:
    with proxied(control_plane) as made:
        yield made


@pytest.fixture(scope="session")
def proxy(operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy of the API server. A test that makes it fail restores it."""
    with proxied_for_operator(operator_kubeconfig, tmp_path_factory.mktemp("proxy")) as made:
        yield made


@pytest.fixture
async def pods(proxy: Proxy, kube: Kube, namespace: str) -> AsyncIterator[Pods]:
    """The pods of a namespace, watched through the proxy."""
    proxy.heal()
    async with watched_through(proxy.kubeconfig, kube, namespace) as made:
        yield made
    proxy.heal()


@pytest.fixture
def world(control_plane: Cluster, kube: Kube, namespace: str, operator: Operator) -> Iterator[World]:
    """A namespace that the operator serves."""
    with world_in(control_plane, kube, namespace) as made:
        yield made


@pytest.fixture(scope="module")
def thief(control_plane: Cluster, operator_kubeconfig: Path) -> Iterator[Kube]:
    """The API server as seen by a holder of the operator's token."""
    with stolen_token(control_plane, operator_kubeconfig) as made:
        yield made

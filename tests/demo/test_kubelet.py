"""The stand-in for kubelet, between a real API server and real folders."""

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hack.controlplane import Cluster
from hack.demo.console import wait_until
from hack.demo.kubelet import SYNC_SECONDS
from hack.demo.paths import demo_environment
from hack.demo.processes import Processes
from hack.demo.samples import CONFIG_VOLUME, POD, Samples, engine_pod

SAMPLES = Samples(pool="pool", labels={"app": "engine"}, admin_port=9464, tenants=())
CONFIG_MAP = "tenantzone-pool"
IP = "127.0.0.1"

pytestmark = pytest.mark.controlplane


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Node:
    """The pod as shown by its node and its API server."""

    cluster: Cluster
    namespace: str
    config: Path
    health_port: int

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *args, stdin=stdin).stdout

    def write_config(self, text: str) -> None:
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(config_map | {"data": {"config.json": text}}))

    def nudge(self, value: str) -> None:
        self.kubectl("annotate", "pod", POD, "--overwrite", f"tenantzone.io/config-hash={value}")

    def await_config(self, text: str, timeout: float) -> None:
        wait_until(
            lambda: self.config.exists() and self.config.read_text() == text,
            lambda: f"{self.config} to say {text!r}",
            timeout=timeout,
            poll=0.02,
        )

    def ready(self) -> str:
        return self.kubectl("get", "pod", POD, '-o=jsonpath={.status.conditions[?(@.type=="Ready")].status}')

    def await_ready(self, status: str) -> None:
        wait_until(lambda: self.ready() == status, lambda: f"Ready={status}", timeout=120, poll=0.1)


@pytest.fixture
def node(control_plane: Cluster, namespace: str, tmp_path: Path) -> Iterator[Node]:
    with socket.create_server((IP, 0)) as probe:
        port = probe.getsockname()[1]
    node = Node(control_plane, namespace, tmp_path / "volumes" / CONFIG_VOLUME / "config.json", port)
    node.kubectl("apply", "-f", "-", stdin=json.dumps(engine_pod(POD, SAMPLES.pool, SAMPLES.labels)))
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    command = [
        sys.executable, "-m", "hack.demo.kubelet", "--kubeconfig", control_plane.kubeconfig, "--namespace", namespace,
        "--pod", POD, "--volumes", tmp_path / "volumes", "--ip", IP, "--health", f"http://{IP}:{port}/health",
    ]  # fmt: skip
    with Processes(tmp_path, lock) as processes:
        processes.start("kubelet", command, demo_environment())
        yield node
    os.close(lock)


def test_a_config_map_arrives_and_changes_arrive_at_once_with_the_annotation(node: Node):
    node.write_config("one")
    node.await_config("one", timeout=120)
    for text in ("two", "three"):
        node.write_config(text)
        node.nudge(text)
        # Far less than the slow period: the annotation caused it.
        node.await_config(text, timeout=SYNC_SECONDS / 2)


def test_the_pod_is_ready_when_the_engine_answers_and_not_before_or_after(node: Node):
    node.await_ready("False")
    assert node.kubectl("get", "pod", POD, "-o=jsonpath={.status.podIP}") == IP
    server = ThreadingHTTPServer((IP, node.health_port), Healthy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        node.await_ready("True")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    node.await_ready("False")

"""What ``make up`` leaves running, and the plugin's commands that it suggests; only the engine is simulated."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hack.controlplane import ControlPlane
from hack.demo import playground
from hack.demo.engines import API_PORT, Engine, Tiers
from hack.demo.models.model import MODELS
from hack.demo.playground import exports, guide
from hack.demo.processes import Processes
from hack.demo.samples import POD, engine_pod, read_samples
from hack.demo.stack import Stack, register, start_kubelet, start_operator
from hack.demo.workspace import workspace
from hack.ports import free_address, free_ports
from tests.operator.fleet import SimulatedEngine
from tests.operator.kube import proxied

pytestmark = pytest.mark.controlplane

Run = Callable[[str], subprocess.CompletedProcess[str]]


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("playground")
    samples = read_samples()
    engine = Engine("zone engine", free_address(API_PORT, samples.admin_port))
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    with (
        ControlPlane(folder / "control-plane") as plane,
        workspace(plane, folder) as place,
        proxied(plane) as kube,
        Processes(folder / "log", lock) as controllers,
    ):
        where = {"pool": samples.pool, "ip": engine.ip, "port": samples.admin_port}
        simulated = SimulatedEngine(kube, place.namespace, POD, blocks=255, **where)
        health = ThreadingHTTPServer((engine.ip, API_PORT), Healthy)
        threading.Thread(target=health.serve_forever, daemon=True).start()
        register(place.cluster, engine_pod(POD, samples.pool, samples.labels))
        (console_port,) = free_ports(1)
        start_operator(controllers, place, "--console-port", str(console_port))
        start_kubelet(controllers, place, POD, folder / "volumes", engine)
        simulated.start()
        place.cluster.kubectl("apply", "--filename", "manifests/samples/")
        place.cluster.kubectl("wait", "--for=condition=Ready", "tenantzones", "--all", "--timeout=60s")
        yield Stack(place, samples, MODELS["tiny"], engine, None, {"acme": "sk-1"}, "token", console_port)
        simulated.stop()
        health.shutdown()
        health.server_close()
    os.close(lock)


@pytest.fixture(scope="module")
def run(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command in a shell that has read what ``up`` exports."""
    file = tmp_path_factory.mktemp("exports") / "exports"
    file.write_text(exports(stack))
    return lambda command: subprocess.run(
        ["/bin/sh", "-c", f". {file} && {command}"], capture_output=True, text=True, timeout=60
    )


def suggested(stack: Stack, command: str) -> str:
    """The line of the guide that begins with this command."""
    (line,) = re.findall(rf"^  ({re.escape(command)}.*)$", guide(stack), re.MULTILINE)
    return line


def test_doctor_finds_nothing_broken_and_says_what_the_operator_is(stack: Stack, run: Run):
    done = run(suggested(stack, "kubectl tenantzone doctor"))

    assert done.stderr == ""
    assert "FAIL" not in done.stdout
    assert re.search(r"^OK +operator's rights +all \d+ required rights are granted$", done.stdout, re.MULTILINE)
    assert re.findall(r"^WARN .*$", done.stdout, re.MULTILINE) == [
        "WARN  operator              runs as a process without a Deployment in namespace tenantzone-system"
    ]
    assert done.returncode == 0


def test_explain_asks_the_engine(stack: Stack, run: Run):
    done = run(suggested(stack, "kubectl tenantzone explain"))

    assert "TenantZone default/acme: Ready" in done.stdout
    assert "engine-0: of 102 reserved blocks the zone holds 0" in done.stdout
    assert "did not answer" not in done.stdout


def test_top_shows_the_zones(stack: Stack, run: Run):
    done = run(suggested(stack, "kubectl tenantzone top") + " --live")

    assert [line.split()[0] for line in done.stdout.splitlines()] == ["NAME", "acme", "burst"]


def test_what_it_says_of_tiers_is_taken_and_without_them_it_says_nothing(stack: Stack, run: Run, tmp_path: Path):
    with_tiers = replace(stack, tiers=Tiers(tmp_path / "the disk"))
    assert "tiers" not in guide(stack)
    for what in ("zonepool demo", "tenantzone acme"):
        done = run(suggested(with_tiers, f'kubectl patch {what} --type=merge --patch=\'{{"spec": {{"tiers'))
        assert done.returncode == 0, done.stderr
    pool = json.loads(run("kubectl get zonepool demo -o jsonpath={.spec.tiers}").stdout)
    assert pool == {"cpu": {"bytes": "256Mi"}, "disk": {"folder": str(tmp_path / "the disk"), "bytes": "1Gi"}}
    assert "CPU" in run(suggested(with_tiers, "kubectl get tenantzones -o wide")).stdout.split("\n")[0]


def test_the_exports_are_read_as_the_guide_says_in_a_folder_with_spaces_in_its_name(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "it's a playground, überall"
    folder.mkdir()
    monkeypatch.setattr(playground, "_EXPORTS", folder / "exports")
    (folder / "exports").write_text(exports(stack))
    reading = next(line for line in guide(stack).splitlines() if line.startswith("  . "))

    done = subprocess.run(["sh", "-c", f"{reading}\necho $KUBECONFIG"], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == str(stack.cluster.kubeconfig)


def test_in_another_cluster_doctor_learns_where_the_operator_is(stack: Stack):
    elsewhere = replace(stack, place=replace(stack.place, operator_namespace="tenantzone-demo-1"))

    assert suggested(elsewhere, "kubectl tenantzone doctor").endswith(" --operator-namespace tenantzone-demo-1")

"""Whatever an engine, a pod or an object contains, the terminal shows it and does nothing else."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hack.harness.lies import HOSTILE_TEXT, LIES
from tenantzone_cli import commands
from tenantzone_cli.__main__ import main
from tenantzone_cli.live import EngineAnswer
from tenantzone_cli.views.explain import Facts, explain
from tenantzone_cli.views.rows import live_rows
from tenantzone_cli.views.top import Selection, document, table
from tenantzone_contract.reports.report import ConfigStatus, LoanReport, Rejection, dump_report, parse_report
from tenantzone_contract.text import printable
from tenantzone_runtime.admin_port.admin import AdminServer
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tests.cli.conftest import Clinic, Plugin
from tests.cli.healthy import NOW, pool, zone
from tests.cli.reports import engine_report, zone_report
from tests.operator.fleet import pod_manifest, pod_status
from tests.operator.kube import Kube
from tests.operator.world import POOL, World, world_in

NAMESPACE, PORT = "hostile", 9464
SINCE = "2026-01-01T00:59:00Z"


def test_an_error_reaches_the_terminal_without_control_characters(capsys: pytest.CaptureFixture[str]):
    def refuse(_: object) -> int:
        raise commands.ApiError(400, HOSTILE_TEXT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "_run", refuse)
        assert main(["top"]) == 1

    assert_harmless(capsys.readouterr().err)


def assert_harmless(shown: str) -> None:
    assert "owned" in shown, "what is hostile is not left out"
    for line in shown.split("\n"):
        assert printable(line) == line


@pytest.fixture(scope="module")
def world(clinic: Clinic, clinic_kube: Kube) -> Iterator[World]:
    """A zone whose status, engines and pods contain what harms a terminal."""
    clinic.install_crds()
    clinic.create_namespace(NAMESPACE)
    with world_in(clinic, clinic_kube, NAMESPACE) as made, hostile_engines(clinic, made):
        made.add_pool(adminPort=PORT)
        made.add_zone("acme", reserved=40)
        write_hostile_statuses(made)
        yield made
    clinic.delete_namespace(NAMESPACE)


def write_hostile_statuses(world: World) -> None:
    said: dict[str, Any] = {"reason": "So", "message": HOSTILE_TEXT, "lastTransitionTime": SINCE}
    conditions = [said | {"type": kind, "status": "False"} for kind in ("Accepted", "Programmed", "Ready")]
    rows = [{"pod": f"{HOSTILE_TEXT}-{number}", "acknowledged": False, "message": HOSTILE_TEXT} for number in (1, 2)]
    status = {"observedGeneration": 1, "conditions": conditions, "message": HOSTILE_TEXT}
    world.kube.merge(f"{world.zone_path('acme')}/status", {"status": status | {"engines": rows}})
    world.kube.merge(f"{world.pool_path}/status", {"status": status})


@contextmanager
def hostile_engines(clinic: Clinic, world: World) -> Iterator[None]:
    """Engines with hostile text in a report, in an error, in an endless report, and in why a pod is not ready."""
    loan = LoanReport(lender="acme", borrower=HOSTILE_TEXT, blocks=1, since_unix_time=0.0)
    report = engine_report(
        zone_report("acme", reserved=40, lent=1),
        zone_report(HOSTILE_TEXT, generation=0, auto_registered=True),
        loans=(loan,),
        config=ConfigStatus(rejected=Rejection(error=HOSTILE_TEXT, unix_time=0.0)),
    )
    reporting = AdminServer("127.0.0.1", 0, lambda: report, access=AdminAccess(None))
    reporting.start()
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for handler in (Refusing, Endless)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    pods = f"/api/v1/namespaces/{world.namespace}/pods"
    for number, port in enumerate((reporting.port, *(server.server_port for server in servers))):
        address = f"192.0.2.{20 + number}"
        clinic.routes[f"{address}:{PORT}"] = ("127.0.0.1", port)
        world.kube.call("POST", pods, pod_manifest(f"engine-{number}", {"pool": POOL}))
        world.kube.merge(f"{pods}/engine-{number}/status", pod_status(address, ready=True))
    world.kube.call("POST", pods, pod_manifest("waiting", {"pool": POOL}))
    unscheduled = {"type": "PodScheduled", "status": "False", "message": HOSTILE_TEXT}
    world.kube.merge(f"{pods}/waiting/status", {"status": {"phase": "Pending", "conditions": [unscheduled]}})
    try:
        yield
    finally:
        reporting.stop()
        for server in servers:
            server.shutdown()
            server.server_close()


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(500)
        self.end_headers()
        self.wfile.write(HOSTILE_TEXT.encode())

    def log_message(self, *_: object) -> None:
        pass


class Endless(Refusing):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(ConnectionError):
            while True:
                self.wfile.write(b" " * 2**16)


@pytest.mark.controlplane
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("top -e", id="top"),
        pytest.param("top -e --live --once", id="top, of the engines themselves"),
        pytest.param("top -e -o json", id="top, for programs"),
        pytest.param("top -e --live --once -o json", id="top, of the engines themselves, for programs"),
        pytest.param("explain acme", id="explain"),
        pytest.param("doctor", id="doctor"),
        pytest.param("doctor -o json", id="doctor, for programs"),
    ],
)
def test_a_command_does_nothing_to_the_terminal(plugin: Plugin, world: World, command: str):
    answer = plugin("tz", *command.split(), "-n", world.namespace)

    assert "Traceback" not in answer.stderr
    assert_harmless(answer.stdout + answer.stderr)


@pytest.mark.controlplane
def test_what_has_no_end_is_not_read_to_its_end(plugin: Plugin, world: World):
    answer = plugin("tz", "top", "--live", "--once", "-n", world.namespace)

    assert f"{NAMESPACE}/engine-2: the answer exceeds the maximum of 16,777,216 bytes" in answer.stdout


@pytest.mark.parametrize("lie", LIES)
def test_no_lie_of_an_engine_ends_a_command(lie: str):
    loan = LoanReport(lender="acme", borrower="burst", blocks=1, since_unix_time=0.0, due_unix_time=1.0)
    honest = json.loads(dump_report(engine_report(zone_report("acme"), loans=(loan,), published=NOW)))
    reported = b"".join(piece for piece, _ in zip(LIES[lie].tell(honest).pieces, range(300), strict=False))
    try:
        report = parse_report(reported)
    except ValueError:
        report = None
    answers = [EngineAnswer(("shop", "demo"), "engine-0", report)]
    rows = list(live_rows([zone("acme")], answers))

    assert "acme" in "".join(table(rows, Selection("shop", engines=True)))
    assert "acme" in document(rows, Selection("shop", engines=True), indent=1)
    assert "acme" in "".join(explain(Facts(zone("acme"), pool(), [zone("acme")], [], answers, NOW)))

"""Reads engines' reports through a real API server, from the runtime's own admin server."""

import json
import os
import signal
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from tenantzone_contract.keys.admin_token import ACCEPTED_FILE, admin_secret_data, admin_secret_name, admin_token
from tenantzone_contract.reports.report import LoanReport
from tenantzone_runtime.admin_port.admin import AdminServer
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tests.cli.conftest import Clinic, Plugin, Start
from tests.cli.reports import engine_report, zone_report
from tests.operator.fleet import pod_manifest, pod_status
from tests.operator.kube import Kube, eventually
from tests.operator.world import POOL, World, world_in

pytestmark = pytest.mark.controlplane

ADDRESS, PORT = "192.0.2.10", 9464


@pytest.fixture(scope="module")
def world(clinic: Clinic, clinic_kube: Kube) -> Iterator[World]:
    """A pool and two zones that no operator has looked at."""
    clinic.install_crds()
    clinic.create_namespace("shop")
    with world_in(clinic, clinic_kube, "shop") as made:
        made.add_pool(adminPort=PORT)
        made.add_zone("acme", reserved=40)
        made.add_zone("burst", limit=60)
        yield made
    clinic.delete_namespace("shop")


@pytest.fixture(scope="module")
def engine(clinic: Clinic, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An engine that has lent 15 of acme's blocks to burst, and can't admit its next request."""
    began = time.time()
    loan = LoanReport(
        lender="acme", borrower="burst", blocks=15, since_unix_time=began - 200, due_unix_time=began + 6000
    )
    acme = zone_report("acme", state="Idle", reserved=40, cached=12, lent=15)
    burst = zone_report(
        "burst",
        state="Active",
        limit=60,
        in_use=60,
        borrowed=15,
        running_requests=2,
        waiting_requests=3,
        wait_reason="limit",
        prefix_query_tokens=200,
        prefix_hit_tokens=100,
        evictions={"own": 7, "limit": 2},
    )
    guest = zone_report("guest", generation=0, auto_registered=True, cached=4, state="Idle")
    # The Secret as the operator makes it, mounted into the engine's pod and read by the plugin.
    data = admin_secret_data([admin_token(b"k" * 32, world.namespace, POOL)])
    encoded = {name: b64encode(content).decode() for name, content in data.items()}
    secrets = f"/api/v1/namespaces/{world.namespace}/secrets"
    world.kube.call("POST", secrets, {"metadata": {"name": admin_secret_name(POOL)}, "data": encoded})
    folder = tmp_path_factory.mktemp("admin")
    (folder / ACCEPTED_FILE).write_bytes(data[ACCEPTED_FILE])
    report = engine_report(acme, burst, guest, loans=(loan,))
    server = AdminServer("127.0.0.1", 0, lambda: report, access=AdminAccess(folder))
    server.start()
    clinic.routes[f"{ADDRESS}:{PORT}"] = ("127.0.0.1", server.port)
    pods = f"/api/v1/namespaces/{world.namespace}/pods"
    world.kube.call("POST", pods, pod_manifest("engine-0", {"pool": POOL}))
    world.kube.merge(f"{pods}/engine-0/status", pod_status(ADDRESS, ready=True))
    yield
    server.stop()


def rows(text: str) -> dict[str, dict[str, Any]]:
    return {zone["name"]: zone for zone in json.loads(text)["zones"]}


@pytest.mark.usefixtures("engine")
def test_top_asks_the_engines_themselves(plugin: Plugin, world: World):
    answer = plugin("tz", "top", "-n", world.namespace, "--live", "-e", "-o", "json")

    shown = rows(answer.stdout)
    assert {key: shown["burst"][key] for key in ("held", "inUse", "cached", "borrowed", "hitPercent", "evictions")} == {
        "held": 60,
        "inUse": 60,
        "cached": 0,
        "borrowed": 15,
        "hitPercent": 50,
        "evictions": 9,
    }
    assert shown["acme"]["lent"] == 15
    assert shown["acme"]["engines"][0]["pod"] == "engine-0"
    assert shown["guest"]["autoRegistered"] is True


@pytest.mark.usefixtures("engine")
def test_explain_says_to_whom_a_zone_lends_and_until_when(plugin: Plugin, world: World):
    answer = plugin("tenantzone", "explain", "acme", "-n", world.namespace)

    assert "engine-0: of 40 reserved blocks it holds 12 itself, 15 are lent, 13 are not in use" in answer.stdout
    assert "lent to burst: 15 blocks for 3m, due in 99m" in answer.stdout


@pytest.mark.usefixtures("engine")
def test_explain_says_why_requests_wait(plugin: Plugin, world: World):
    answer = plugin("tz", "explain", "tz/burst", "-n", world.namespace)

    assert (
        "engine-0: 2 running, 3 waiting: waits for blocks: its own limit is in use; raise spec.limit" in answer.stdout
    )
    assert "borrowed from acme: 15 blocks" in answer.stdout


@pytest.mark.usefixtures("engine")
def test_a_user_without_the_right_sees_which_is_missing_and_the_status(clinic: Clinic, plugin: Plugin, world: World):
    inside = ("--namespace", world.namespace)
    readable = "--resource=tenantzones.tenantzone.io,zonepools.tenantzone.io,pods"
    clinic.kubectl("create", "role", "viewer", "--verb=get,list", readable, *inside)
    clinic.kubectl("create", "rolebinding", "viewer", "--role=viewer", "--user=vera", *inside)
    status = {"observedGeneration": 1, "held": 12, "inUse": 4, "cached": 8, "evictions": 3}
    body = {"status": status}
    path = f"/apis/tenantzone.io/v1alpha1/namespaces/{world.namespace}/tenantzones/acme/status"
    world.kube.merge(path, body)
    # Rights granted by RBAC take a moment to apply.
    eventually(lambda: plugin("tz", "top", *inside, "--as=vera", "-o", "json").returncode == 0)

    by_status = plugin("tz", "top", *inside, "--as=vera", "-o", "json")
    live = plugin("tz", "top", *inside, "--as=vera", "--live", "--once")

    assert rows(by_status.stdout)["acme"]["held"] == 12
    assert "it takes the right to get pods/proxy, so leave out --live" in live.stdout


@pytest.mark.usefixtures("engine")
def test_a_user_who_may_not_read_the_token_sees_in_which_secret_it_is(clinic: Clinic, plugin: Plugin, world: World):
    inside = ("--namespace", world.namespace)
    for number, readable in enumerate(("tenantzones.tenantzone.io,zonepools.tenantzone.io,pods", "pods/proxy")):
        clinic.kubectl("create", "role", f"prober-{number}", "--verb=get,list", f"--resource={readable}", *inside)
        clinic.kubectl("create", "rolebinding", f"prober-{number}", f"--role=prober-{number}", "--user=paul", *inside)
    eventually(lambda: plugin("tz", "top", *inside, "--as=paul").returncode == 0)

    live = plugin("tz", "top", *inside, "--as=paul", "--live", "--once")

    secret = f"Secret {world.namespace}/{admin_secret_name(POOL)}"
    assert f"its admin port asks for the token in the {secret}, which you may not get" in live.stdout + live.stderr


@pytest.mark.usefixtures("engine")
def test_an_engine_that_is_not_there_is_named(
    clinic: Clinic, plugin: Plugin, world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(clinic.routes, f"{ADDRESS}:{PORT}")

    answer = plugin("tz", "doctor", "-n", world.namespace, "-o", "json")

    (message,) = [
        finding["message"]
        for finding in json.loads(answer.stdout)["findings"]
        if finding["subject"] == f"engines {world.namespace}/{POOL}"
    ]
    assert message.startswith("can't be asked (error trying to reach service")
    assert message.endswith("engine-0")


def test_a_pipe_gets_the_table_once_without_control_characters(plugin: Plugin, world: World):
    answer = plugin("tz", "top", "-n", world.namespace)

    lines = answer.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "acme", "burst"]
    assert "\033" not in answer.stdout


def test_the_contexts_namespace_is_the_default(clinic: Clinic, plugin: Plugin, world: World, tmp_path: Any):
    copy = tmp_path / "kubeconfig"
    copy.write_text(clinic.kubeconfig.read_text())
    clinic.kubectl(f"--kubeconfig={copy}", "config", "set-context", "--current", f"--namespace={world.namespace}")

    answer = plugin("tz", "top", KUBECONFIG=str(copy))

    assert "acme" in answer.stdout


def test_a_table_is_shown_again_and_again_until_the_process_is_ended(clinic: Clinic, start: Start, world: World):
    command = ("tz", "top", "-n", world.namespace, "--watch", "--interval=0.1")
    with start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(2):
            while not process.stdout.readline().startswith("NAME"):
                assert process.poll() is None
        process.terminate()
        # Its error stream ends only when kubectl's proxy, which shares it, is gone.
        _, errors = process.communicate(timeout=30)

    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors


def test_a_terminal_shows_the_table_in_place(start: Start, world: World):
    ours, theirs = os.openpty()
    with start("tz", "top", "-n", world.namespace, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        shown = b""
        while b"burst" not in shown:
            shown += os.read(ours, 4096)
        process.terminate()
    os.close(theirs)
    os.close(ours)

    assert shown.startswith(b"\033[H")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("explain", "missing"), 'tenantzones.tenantzone.io "missing" not found', id="no such zone"),
        pytest.param(("top", "--context=nowhere"), 'context "nowhere" does not exist', id="no such context"),
        pytest.param(("top", "--as=nobody"), "cannot list resource", id="no rights"),
    ],
)
@pytest.mark.usefixtures("world")
def test_what_can_not_be_done_is_said_in_words(plugin: Plugin, arguments: tuple[str, ...], said: str):
    answer = plugin("tz", *arguments)

    assert answer.returncode == 1
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr

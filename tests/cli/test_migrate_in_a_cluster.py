"""``kubectl tz migrate`` through a real API server, which passes orders on to the engines' admin ports."""

import json
import signal
import subprocess
from base64 import b64encode
from collections.abc import Iterator

import pytest

from tenantzone_contract.keys.admin_token import ACCEPTED_FILE, admin_secret_data, admin_secret_name, admin_token
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tests.cli.conftest import Clinic, Plugin, Start
from tests.cli.moving_engines import MovingEngine
from tests.operator.fleet import pod_manifest, pod_status
from tests.operator.kube import Kube, eventually
from tests.operator.world import POOL, World, world_in

pytestmark = pytest.mark.controlplane

PORT = 9464
PROMPTS = ((b"a1", b"a2"), (b"b1", b"b2", b"b3"))
BOTH = ("--from", "engine-0", "--to", "engine-1")


@pytest.fixture(scope="module")
def world(clinic: Clinic, clinic_kube: Kube) -> Iterator[World]:
    clinic.install_crds()
    clinic.create_namespace("move")
    with world_in(clinic, clinic_kube, "move") as made:
        made.add_pool(adminPort=PORT)
        made.add_zone("acme")
        yield made
    clinic.delete_namespace("move")


@pytest.fixture(scope="module")
def access(world: World, tmp_path_factory: pytest.TempPathFactory) -> AdminAccess:
    """Access for callers with the token of the pool's Secret."""
    data = admin_secret_data([admin_token(b"k" * 32, world.namespace, POOL)])
    encoded = {name: b64encode(content).decode() for name, content in data.items()}
    secrets = f"/api/v1/namespaces/{world.namespace}/secrets"
    world.kube.call("POST", secrets, {"metadata": {"name": admin_secret_name(POOL)}, "data": encoded})
    folder = tmp_path_factory.mktemp("admin")
    (folder / ACCEPTED_FILE).write_bytes(data[ACCEPTED_FILE])
    return AdminAccess(folder)


@pytest.fixture(scope="module")
def pods(world: World) -> list[str]:
    """The addresses of two ready pods."""
    path, addresses = f"/api/v1/namespaces/{world.namespace}/pods", ["192.0.2.20", "192.0.2.21"]
    for number, address in enumerate(addresses):
        world.kube.call("POST", path, pod_manifest(f"engine-{number}", {"pool": POOL}))
        world.kube.merge(f"{path}/engine-{number}/status", pod_status(address, ready=True))
    return addresses


@pytest.fixture
def engines(clinic: Clinic, pods: list[str], access: AdminAccess) -> Iterator[list[MovingEngine]]:
    pair = [MovingEngine(f"engine-{number}", PROMPTS if not number else (), access=access) for number in range(2)]
    for each, address in zip(pair, pods, strict=True):
        each.start()
        clinic.routes[f"{address}:{PORT}"] = ("127.0.0.1", each.port)
    yield pair
    for each in pair:
        each.stop()


def orders(engine: MovingEngine) -> list[str]:
    return [each.order for each in engine.orders]


def test_what_one_has_cached_is_brought_to_the_other(plugin: Plugin, world: World, engines: list[MovingEngine]):
    answer = plugin("tz", "migrate", "tz/acme", *BOTH, "--rate", "1k", "-n", world.namespace)
    assert answer.returncode == 0, answer.stderr
    assert "5 chunks (4.9Ki, 80 tokens) are not in any shared storage; moving them takes 5 s" in answer.stderr
    assert [line.split()[:2] for line in answer.stdout.splitlines()] == [
        ["ENGINE", "WORK"],
        ["engine-0", "hands"],
        ["engine-1", "brings"],
    ]
    assert (orders(engines[0]), orders(engines[1])) == (["look", "hand-down"], ["warm-up"])
    assert engines[1].orders[0].prompts == PROMPTS


def test_where_it_does_not_pay_nothing_is_moved(plugin: Plugin, world: World, engines: list[MovingEngine]):
    engines[0].speed = 1e6
    slowly = ("tz", "migrate", "acme", *BOTH, "--rate", "1k", "-n", world.namespace, "-o", "json")
    answer = plugin(*slowly)
    assert answer.returncode == 1
    assert "moving does not pay" in answer.stderr
    assert (orders(engines[0]), orders(engines[1])) == (["look"], [])
    answer = plugin(*slowly, "--anyway")
    reported = json.loads(answer.stdout)
    assert (answer.returncode, reported["estimate"]["pays"]) == (0, False)
    assert [each["movedBytes"] for each in reported["work"]] == [5000, 5000]


def test_a_dry_run_only_looks(plugin: Plugin, world: World, engines: list[MovingEngine]):
    answer = plugin("tz", "migrate", "acme", *BOTH, "--dry-run", "-n", world.namespace)
    assert answer.returncode == 0
    assert (orders(engines[0]), orders(engines[1])) == (["look"], [])


def test_ctrl_c_ends_what_goes_on(start: Start, world: World, engines: list[MovingEngine]):
    engines[0].never_ends = True
    arguments = ("tz", "migrate", "acme", *BOTH, "-n", world.namespace)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start(*arguments, **pipes) as process:
        eventually(lambda: orders(engines[0]) == ["look"])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert orders(engines[0]) == ["look", "stop"]
    assert orders(engines[1]) == ["stop"]


def test_another_command_cancels_it(plugin: Plugin, world: World, engines: list[MovingEngine]):
    assert plugin("tz", "migrate", "acme", *BOTH, "--cancel", "-n", world.namespace).returncode == 0
    assert (orders(engines[0]), orders(engines[1])) == (["stop"], ["stop"])


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("engine-0", "engine-0", "--from and --to name the same pod, engine-0"),
        ("engine-7", "engine-0", f"pool {POOL} has no engine engine-7; its engines are: engine-0, engine-1"),
    ],
)
@pytest.mark.usefixtures("engines")
def test_what_can_not_be_is_said(plugin: Plugin, world: World, source: str, target: str, words: str):
    answer = plugin("tz", "migrate", "acme", "--from", source, "--to", target, "-n", world.namespace)
    assert answer.returncode == 1
    assert words in answer.stderr


@pytest.fixture
def leaving(world: World, pods: list[str]) -> Iterator[str]:
    """The name of an engine whose pod was deleted, and does not end yet."""
    pods_path = f"/api/v1/namespaces/{world.namespace}/pods"
    metadata = {"name": "engine-2", "labels": {"pool": POOL}, "finalizers": ["example.com/held"]}
    manifest = pod_manifest("engine-2", {}) | {"metadata": metadata}
    world.kube.call("POST", pods_path, manifest)
    world.kube.merge(f"{pods_path}/engine-2/status", pod_status(pods[1], ready=True))
    world.kube.call("DELETE", f"{pods_path}/engine-2")
    yield "engine-2"
    world.kube.merge(f"{pods_path}/engine-2", {"metadata": {"finalizers": None}})
    eventually(lambda: world.kube.get(f"{pods_path}/engine-2") is None)


def test_nothing_is_brought_to_an_engine_that_ends(
    plugin: Plugin, world: World, engines: list[MovingEngine], leaving: str
) -> None:
    to_it = ("tz", "migrate", "acme", "--from", "engine-0", "--to", leaving, "-n", world.namespace)
    answer = plugin(*to_it)
    assert answer.returncode == 1
    assert f"engine {leaving} is being deleted, and blocks moved to it would be lost" in answer.stderr
    assert (orders(engines[0]), orders(engines[1])) == ([], [])
    assert plugin(*to_it, "--cancel").returncode == 0
    # Its content is moved to another engine.
    answer = plugin("tz", "migrate", "acme", "--from", leaving, "--to", "engine-0", "-n", world.namespace)
    assert answer.returncode == 0, answer.stderr
    assert orders(engines[0]) == ["stop", "warm-up"]

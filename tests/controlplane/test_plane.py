"""The control plane that the demo and the other tests use."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.controlplane import Cluster, ClusterError, ControlPlane, connect_or_start, detached

REPOSITORY = Path(detached.__file__).parents[2]
WAIT_SECONDS = 60.0


def processes_of(folder: Path) -> list[str]:
    """Command lines of the running processes that mention the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if f"{folder}/" in command:
            found.append(command)
    return found


def await_no_process_of(folder: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while left := processes_of(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def await_success(attempt: Callable[[], object]) -> None:
    """Repeats it until it raises no more: the API server learns of new roles from its own watch."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            attempt()
        except ClusterError:
            assert time.monotonic() < deadline
        else:
            return


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


def test_a_user_may_do_only_what_rbac_grants(plane: ControlPlane) -> None:
    plane.create_namespace("shop")
    reader = Cluster(plane.user_kubeconfig("reader"), plane.server, plane.kubectl_program)
    with pytest.raises(ClusterError, match=r'"reader" cannot list resource "configmaps"'):
        reader.kubectl("get", "configmaps", "--namespace=shop")

    plane.kubectl("create", "role", "reader", "--verb=list", "--resource=configmaps", "--namespace=shop")
    plane.kubectl("create", "rolebinding", "reader", "--role=reader", "--user=reader", "--namespace=shop")
    await_success(lambda: reader.kubectl("get", "configmaps", "--namespace=shop"))
    with pytest.raises(ClusterError, match="forbidden"):
        reader.kubectl("create", "configmap", "mine", "--namespace=shop")


def test_a_service_account_comes_with_its_groups(plane: ControlPlane) -> None:
    kubeconfig = plane.user_kubeconfig("system:serviceaccount:tools:robot")
    shown = Cluster(kubeconfig, plane.server, plane.kubectl_program).kubectl("auth", "whoami")
    for group in ("system:serviceaccounts", "system:serviceaccounts:tools", "system:authenticated"):
        assert group in shown.stdout.split("Groups")[1]


def test_anonymous_requests_are_refused(plane: ControlPlane, tmp_path: Path) -> None:
    anonymous = tmp_path / "kubeconfig"
    anonymous.write_text("apiVersion: v1\nkind: Config\n")
    stranger = Cluster(anonymous, plane.server, plane.kubectl_program)
    flags = (f"--server={plane.server}", "--insecure-skip-tls-verify", "--username=stranger", "--password=none")
    with pytest.raises(ClusterError, match=r"(?i)unauthorized|logged in|forbidden"):
        stranger.kubectl("get", "namespaces", *flags)


def test_a_restarted_api_server_has_the_same_address_and_objects(plane: ControlPlane) -> None:
    plane.kubectl("create", "configmap", "kept")
    server = plane.server
    plane.stop_apiserver()
    with pytest.raises(ClusterError, match="refused"):
        plane.kubectl("get", "configmap", "kept")
    plane.start_apiserver()
    assert plane.server == server
    assert plane.kubectl("get", "configmap", "kept", "--output=name").stdout == "configmap/kept\n"


def test_a_deleted_namespace_is_gone_although_its_objects_have_finalizers(plane: ControlPlane) -> None:
    plane.create_namespace("old")
    plane.kubectl("create", "configmap", "held", "--namespace=old")
    patch = '{"metadata":{"finalizers":["example.com/held"]}}'
    plane.kubectl("patch", "configmap", "held", "--namespace=old", "--type=merge", f"--patch={patch}")
    plane.delete_namespace("old")
    plane.kubectl("wait", "--for=delete", "namespace/old", "--timeout=30s")
    assert "held" not in plane.kubectl("get", "configmaps", "--all-namespaces").stdout


def test_a_folder_has_one_control_plane_at_a_time(plane: ControlPlane) -> None:
    with pytest.raises(ClusterError, match=r"runs in .* already"):
        ControlPlane(plane.kubeconfig.parent).start()


def test_a_failing_server_is_shown_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = ControlPlane(tmp_path)
    (tmp_path / "etcd").write_text("a file where etcd wants its folder")
    with pytest.raises(ClusterError, match=r"(?s)ended; the end of .*etcd\.log.*etcd"), broken:
        pass
    await_no_process_of(tmp_path)


def test_stop_leaves_no_process_and_a_later_start_finds_the_objects(tmp_path: Path) -> None:
    with ControlPlane(tmp_path) as first:
        first.kubectl("create", "configmap", "kept")
        assert len(processes_of(tmp_path)) >= 2
    assert processes_of(tmp_path) == []
    with ControlPlane(tmp_path) as second:
        second.kubectl("get", "configmap", "kept")
    assert processes_of(tmp_path) == []


def test_the_servers_end_when_the_program_that_holds_them_is_killed(tmp_path: Path) -> None:
    script = (
        "import signal, sys; from pathlib import Path; from hack.controlplane import ControlPlane\n"
        "with ControlPlane(Path(sys.argv[1])): print('ready', flush=True); signal.pause()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "plane"],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        holder.send_signal(signal.SIGKILL)
    await_no_process_of(tmp_path / "plane")


def test_a_detached_one_outlives_its_starter_until_it_is_stopped(tmp_path: Path) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hack.controlplane", *arguments],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            check=False,
        )

    folder = ("--folder", str(tmp_path))
    assert str(tmp_path / "admin.kubeconfig") in command("start", *folder).stdout
    keeper = detached.keeper_of(tmp_path)
    command("start", *folder)
    assert detached.keeper_of(tmp_path) == keeper
    assert "default" in command("kubectl", *folder, "get", "namespaces").stdout
    assert command("stop", *folder).stdout == "stopped\n"
    assert processes_of(tmp_path) == []
    assert "no control plane runs" in command("stop", *folder).stdout
    assert "start one with" in command("kubectl", *folder, "get", "namespaces").stderr


def test_a_named_cluster_is_used_and_left_running(plane: ControlPlane, tmp_path: Path) -> None:
    with connect_or_start(tmp_path, plane.kubeconfig) as cluster:
        assert cluster.server == plane.server
        cluster.kubectl("get", "namespaces")
    assert list(tmp_path.iterdir()) == []
    plane.kubectl("get", "namespaces")


def test_a_named_cluster_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no such file"), connect_or_start(tmp_path, tmp_path / "absent"):
        pass


def test_a_developers_kubeconfig_is_out_of_reach() -> None:
    assert os.environ["KUBECONFIG"] == os.devnull

"""The programs of a control plane."""

import subprocess
import sys
from pathlib import Path

import pytest

from hack.controlplane import binaries
from hack.controlplane.binaries import BinariesError, find_binaries
from hack.controlplane.build import kubernetes_version
from hack.controlplane.cache import exclusive


def program(folder: Path, name: str, says: str = "") -> Path:
    """A program that prints a text."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def servers(folder: Path) -> list[Path]:
    return [program(folder, "etcd"), program(folder, "kube-apiserver", "Kubernetes v1.35.1")]


def kubectl(folder: Path, minor: str) -> Path:
    return program(folder, "kubectl", f'{{"clientVersion": {{"major": "1", "minor": "{minor}"}}}}')


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the result of a build of some minutes."""
    folder = tmp_path / "built"
    servers(folder)
    kubectl(folder, "35")
    monkeypatch.setattr(binaries, "built_programs", lambda: folder)
    return folder


def test_kubebuilder_assets_come_first(built: Path, tmp_path: Path) -> None:
    assets, path = tmp_path / "assets", tmp_path / "path"
    etcd, kube_apiserver = servers(assets)
    fitting = kubectl(assets, "35")
    servers(path)
    kubectl(path, "35")
    found = find_binaries({"KUBEBUILDER_ASSETS": str(assets), "PATH": f"{path}:/usr/bin:/bin"})
    assert (found.etcd, found.kube_apiserver, found.kubectl) == (etcd, kube_apiserver, fitting)


def test_kubebuilder_assets_without_a_server_are_an_error(built: Path, tmp_path: Path) -> None:
    program(tmp_path / "assets", "etcd")
    with pytest.raises(BinariesError, match=r"assets has no kube-apiserver; unset it"):
        find_binaries({"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": ""})


def test_path_is_used_if_it_has_both_servers(built: Path, tmp_path: Path) -> None:
    both = servers(tmp_path / "path")
    found = find_binaries({"PATH": str(tmp_path / "path")})
    assert [found.etcd, found.kube_apiserver] == both
    (tmp_path / "path" / "etcd").unlink()
    found = find_binaries({"PATH": str(tmp_path / "path")})
    assert (found.etcd, found.kube_apiserver) == (built / "etcd", built / "kube-apiserver")


@pytest.mark.parametrize(("minor", "fits"), [("33", False), ("34", True), ("35", True), ("36+", True), ("37", False)])
def test_a_kubectl_further_than_one_minor_version_from_the_server_is_passed_over(
    built: Path, tmp_path: Path, minor: str, fits: bool
) -> None:
    servers(tmp_path / "path")
    mine = kubectl(tmp_path / "path", minor)
    found = find_binaries({"PATH": str(tmp_path / "path")})
    assert found.kubectl == (mine if fits else built / "kubectl")


def test_the_built_programs_are_of_the_pinned_version() -> None:
    found = binaries.built_programs()
    shown = subprocess.run([found / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"Kubernetes v{kubernetes_version()}\n"


def test_a_second_build_waits_for_the_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with holder:
        waiter = subprocess.Popen([sys.executable, "-c", _WAIT, lock], stderr=subprocess.PIPE, text=True)
        assert waiter.stderr is not None
        assert "waiting for another process" in waiter.stderr.readline()
        assert waiter.poll() is None
        holder.stdin.close()
    with waiter:
        assert waiter.wait(timeout=30) == 0
    with exclusive(lock, name="test"):
        assert capfd.readouterr().err == ""


_PATH = f"import sys; sys.path.insert(0, {str(Path(binaries.__file__).parents[2])!r})\n"
_LOCK = "from pathlib import Path; from hack.controlplane.cache import exclusive\n"
_HOLD = _PATH + _LOCK + "with exclusive(Path(sys.argv[1]), name='a'): print('held', flush=True); sys.stdin.read()"
_WAIT = _PATH + _LOCK + "with exclusive(Path(sys.argv[1]), name='b'): pass"

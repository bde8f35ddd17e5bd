"""The demo in a cluster named by the user: its own namespace, and nothing left behind."""

from pathlib import Path

import pytest

from hack.controlplane import Cluster
from hack.demo.workspace import show, workspace

pytestmark = pytest.mark.controlplane


def phase(cluster: Cluster, namespace: str) -> str:
    return cluster.kubectl("get", "namespace", namespace, "--ignore-not-found", "-o=jsonpath={.status.phase}").stdout


def test_a_named_cluster_is_used_in_a_fresh_namespace_that_is_removed(control_plane: Cluster, tmp_path: Path):
    named = Cluster.named(control_plane.kubeconfig)
    with workspace(named, tmp_path) as place:
        namespace = place.namespace
        place.cluster.kubectl("create", "configmap", "made-by-the-demo")
        named.kubectl("get", "configmap", "made-by-the-demo", "--namespace", namespace)
        assert phase(named, namespace) == "Active"
    assert phase(named, namespace) in ("Terminating", "")


def test_the_namespace_is_removed_when_the_demo_fails(control_plane: Cluster, tmp_path: Path):
    seen: list[str] = []

    def failing() -> None:
        with workspace(Cluster.named(control_plane.kubeconfig), tmp_path) as place:
            seen.append(place.namespace)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        failing()
    assert phase(control_plane, seen[0]) in ("Terminating", "")


def test_crds_that_were_there_are_left_alone(control_plane: Cluster, tmp_path: Path):
    before = control_plane.kubectl("get", "crd", "-o=jsonpath={.items[*].metadata.resourceVersion}").stdout
    with workspace(Cluster.named(control_plane.kubeconfig), tmp_path):
        pass
    assert (
        control_plane.kubectl("get", "crd", "-o=jsonpath={.items[*].metadata.resourceVersion}").stdout == before != ""
    )


def test_a_refusal_of_the_api_server_is_shown_and_returned(
    control_plane: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
):
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not A Name}\n"
    answer = show(control_plane, "apply", "--namespace", namespace, "-f", "-", stdin=manifest, check=False)
    assert "Not A Name" in answer
    assert answer in capsys.readouterr().out

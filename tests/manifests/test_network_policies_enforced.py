"""The shipped NetworkPolicies as a network plugin enforces them: connections between pods, let through or not."""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest
import yaml

from hack.controlplane import Cluster, ControlPlane
from hack.controlplane.server import Server
from hack.policies import POLICIES
from tests.manifests.network import QUEUE, Network, Target, network_of
from tests.manifests.reach import CASES, PEERS, Peer
from tests.manifests.rendering import kustomize
from tests.waiting import await_that

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="network namespaces need root and Linux"),
]

CONNECT_SECONDS = 2.0
"""Seconds for an allowed connection, also on a busy machine; a slower one is tried once more."""

Reached = dict[tuple[str, Target], bool]


def target(name: str, port: int) -> Target:
    return PEERS[name].address, port


WANTED: dict[str, list[Target]] = defaultdict(list)
PORTS: dict[str, set[int]] = {peer.address: set() for peer in PEERS.values()}
for case in CASES:
    WANTED[PEERS[case.source].address].append(target(case.target, case.port))
    PORTS[PEERS[case.target].address].add(case.port)
EXPECTED: Reached = {(PEERS[case.source].address, target(case.target, case.port)): case.is_let for case in CASES}


def pod(name: str, peer: Peer) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "none",
        "ports": [{"name": port, "containerPort": number} for port, number in peer.ports.items()],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name.replace(" ", "-"), "namespace": peer.namespace, "labels": peer.labels},
        "spec": {"schedulerName": "none", "automountServiceAccountToken": False, "containers": [container]},
    }


def register_pods(cluster: Cluster) -> None:
    """Registers the network's pods, with their addresses, in the API server."""
    pods = {name: peer for name, peer in PEERS.items() if peer.namespace}
    for namespace in sorted({peer.namespace for peer in pods.values()} - {"default", "kube-system"}):
        cluster.create_namespace(namespace)
    cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(pod(*each) for each in pods.items()))
    for name, peer in pods.items():
        status = {"status": {"phase": "Running", "podIP": peer.address, "podIPs": [{"ip": peer.address}]}}
        cluster.kubectl(
            "--namespace", peer.namespace, "patch", "pod", name.replace(" ", "-"), "--subresource=status",
            "--type=merge", "--patch", yaml.safe_dump(status),
        )  # fmt: skip


def apply_policies(cluster: Cluster) -> None:
    for folder, namespace in (("base", "tenantzone-system"), ("overlays/cpu-demo", "default")):
        policies = [body for (kind, _), body in kustomize(folder).items() if kind == "NetworkPolicy"]
        assert policies
        cluster.kubectl("--namespace", namespace, "apply", "--filename=-", stdin=yaml.safe_dump_all(policies))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A separate cluster: the policies are for namespaces with fixed names."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as cluster:
        register_pods(cluster)
        yield cluster


@pytest.fixture(scope="module")
def network(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """All peers in a network, and the plugin where their packets are forwarded."""
    folder = tmp_path_factory.mktemp("network")
    with network_of(PORTS) as network, (folder / "lock").open("w") as lock:
        plugin = Server(
            network.in_router(
                POLICIES.folder() / "network-policies",
                "--kubeconfig", cluster.kubeconfig,
                "--api-server-network", f"/proc/{os.getpid()}/ns/net",
                "--node", "node",
                "--queue", str(QUEUE),
            ),
            log=folder / "network-policies.log",
            keep_open=lock.fileno(),
        )  # fmt: skip
        try:
            yield network
        finally:
            plugin.stop()


def await_reached(network: Network, expected: Reached) -> None:
    found: Reached = {}

    def are_as_expected() -> bool:
        found.update(network.reached(WANTED, CONNECT_SECONDS))
        return found == expected

    try:
        await_that(are_as_expected, "who reaches whom is as it should be", seconds=60)
    except TimeoutError:
        assert found == expected


def test_who_reaches_whom_when_a_network_plugin_enforces_it(cluster: Cluster, network: Network):
    # Without policies all connect, so later failures are caused by the policies.
    await_reached(network, dict.fromkeys(EXPECTED, True))
    apply_policies(cluster)
    await_reached(network, EXPECTED)

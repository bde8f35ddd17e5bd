"""The product as shipped, installed once on a real cluster for all tests here. They build on each other, in order."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane import Cluster, ClusterError
from node.node import Inside, inside
from tests.e2e.client import Client
from tests.e2e.engines import Engines
from tests.e2e.installation import Installation


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only when asked for: they need a cluster with nodes, and the images."""
    return None if config.getoption("--e2e") else True


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> str:
    """The operator's."""
    return str(request.config.getoption("--operator-image"))


_ORDER = ("installed", "changes", "failures", "scaling", "upgrade", "dropin", "uninstalled")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An engine takes minutes to start, so one installation serves them all, and goes through one story."""
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    items[:] = [item for item in items if item not in ours] + sorted(ours, key=_chapter)


def _chapter(item: pytest.Item) -> int:
    return _ORDER.index(item.path.stem.removeprefix("test_"))


@dataclass(frozen=True)
class OwnNode:
    """The node that all of this runs on, from below."""

    inside: Inside

    def kill(self, daemon: str) -> None:
        """End a daemon the hard way; the node starts it again."""
        subprocess.run(self.inside.enter("pkill", "--signal=KILL", "--exact", daemon), check=True)

    def kill_container(self, container: str) -> None:
        """End a container's first process, as the kernel does when memory is short."""
        kill = ("ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", container)
        subprocess.run(self.inside.enter(*kill), check=True)


@pytest.fixture(scope="session")
def node(request: pytest.FixtureRequest) -> OwnNode:
    try:
        return OwnNode(inside(Path(request.config.getoption("--kubeconfig")).parent))
    except ClusterError:
        pytest.skip("the cluster was named: its node is not ours to break")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster.named(request.config.getoption("--kubeconfig"))


@pytest.fixture(scope="session")
def installation(cluster: Cluster, image: str, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """CRDs and operator, from the manifests."""
    installed = Installation(cluster, image, tmp_path_factory.mktemp("installation"))
    installed.install()
    return installed


@pytest.fixture(scope="session")
def engines(
    cluster: Cluster, installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    """Two engines with the sample pool and zones, in a namespace with the strictest pod security."""
    engines = Engines(cluster, tmp_path_factory.mktemp("engines"))
    engines.deploy(replicas=2)
    yield engines
    engines.remove()


@pytest.fixture(scope="session")
def client(cluster: Cluster, engines: Engines, image: str) -> Client:
    client = Client(cluster, image)
    client.start()
    return client

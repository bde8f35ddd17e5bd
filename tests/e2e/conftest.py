"""The product as shipped, installed once on a real cluster for all tests here. They depend on each other, in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane import Cluster, ClusterError
from hack.node.node import inside
from tests.e2e.client import Client
from tests.e2e.engines import Engines
from tests.e2e.installation import Installation
from tests.e2e.own_node import OwnNode
from tests.operator.kube import proxied

_STORY = ("installed", "changes", "failures", "scaling", "dropin", "upgrade", "uninstalled")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collects these tests only on request: they need a cluster with nodes, and the images."""
    return None if config.getoption("--e2e") else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An engine takes minutes to start, so one installation serves all tests, in a fixed order."""
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    items[:] = [item for item in items if item not in ours] + sorted(ours, key=_chapter)


def _chapter(item: pytest.Item) -> int:
    return _STORY.index(item.path.stem.removeprefix("test_"))


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> str:
    """The operator's image."""
    return str(request.config.getoption("--operator-image"))


@pytest.fixture(scope="session")
def image_before(request: pytest.FixtureRequest, image: str) -> str:
    """The operator's image of the previous commit."""
    return str(request.config.getoption("--operator-image-before") or image)


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
    request: pytest.FixtureRequest,
    cluster: Cluster,
    installation: Installation,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engines]:
    """Two engines with the sample pool and zones, in a namespace with the strictest pod security."""
    folder = tmp_path_factory.mktemp("engines")
    with proxied(cluster) as kube:
        engines = Engines(cluster, kube, folder, request.config.getoption("--engine-image"))
        engines.deploy(replicas=2)
        yield engines
        engines.remove()


@pytest.fixture(scope="session")
def client(cluster: Cluster, engines: Engines, image: str) -> Client:
    client = Client(cluster, image)
    client.start()
    return client

"""Shared by tests of several parts: a real Kubernetes control plane and a namespace in it; a user's PATH."""

import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane import Cluster, connect_or_start
from hack.version import VERSION

pytest_plugins = [
    "tests.examples",
    "tests.failures_at_once",
    "tests.garbage",
    "tests.shared_engine",
    "tests.side_by_side",
    "tests.thorough",
    "tests.time_by_folder",
]

# Tests that several modules inherit; pytest is to explain their assertions as elsewhere.
pytest.register_assert_rewrite("tests.housekeeping.engine_port")

CRDS = Path(__file__).parent.parent / "crds"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kubeconfig",
        default=os.environ.get("TENANTZONE_TEST_KUBECONFIG"),
        help="run against the cluster that this file names (also: TENANTZONE_TEST_KUBECONFIG), which gets our CRDs; "
        "by default a control plane is started for the session",
    )
    ours = parser.getgroup("end-to-end tests, on the cluster of --kubeconfig")
    ours.addoption("--e2e", action="store_true", help="run them, and nothing else")
    ours.addoption("--operator-image", default=f"localhost/tenantzone-operator:{VERSION}", help="default: %(default)s")
    ours.addoption("--operator-image-before", help="to upgrade from; default: the same image")
    ours.addoption("--engine-image", help="with vLLM for CPUs; default: engines use the environment on the node's disk")


def pytest_configure(config: pytest.Config) -> None:
    # Neither a test nor a child process may ever reach the developer's own cluster by accident.
    os.environ["KUBECONFIG"] = os.devnull


@pytest.fixture(autouse=True)
def _root_log_level() -> None:
    """Resets the level, so that logs do not depend on earlier tests; vLLM's application raises it for its process."""
    logging.root.setLevel(logging.WARNING)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with our CRDs: the named one, or else a `ControlPlane`, whose API server can be restarted."""
    folder = tmp_path_factory.mktemp("control-plane")
    with connect_or_start(folder, request.config.getoption("--kubeconfig")) as cluster:
        cluster.kubectl("apply", "--server-side", "--filename", str(CRDS))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "--filename", str(CRDS))
        yield cluster


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """A fresh namespace, deleted afterwards with everything in it."""
    name = f"test-{secrets.token_hex(4)}"
    control_plane.create_namespace(name)
    yield name
    control_plane.delete_namespace(name)


@pytest.fixture(scope="module")
def users_path() -> Iterator[None]:
    """PATH as Debian's users have it, and root by ``su``: without the folders of the administrator's programs."""
    folders = os.environ["PATH"].split(os.pathsep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join(folder for folder in folders if Path(folder).name != "sbin"))
        yield

"""One operator, whose network is as bad as a test asks for."""

from collections.abc import Iterator

import pytest

from hack.harness.proxy import Proxy
from tests.operator.conftest import Operator


@pytest.fixture(scope="package")
def operator(proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Uses the proxy as its API server. A test that ends it starts it again."""
    running = Operator(proxy.kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log")
    running.start()
    running.await_running()
    yield running
    assert running.stop() == 0
    # kopf logs where its watches broke; our code must log no error.
    assert "tenantzone_operator. [ERROR" not in running.log, running.log


@pytest.fixture(autouse=True)
def healed(proxy: Proxy) -> Iterator[None]:
    proxy.heal()
    yield
    proxy.heal()

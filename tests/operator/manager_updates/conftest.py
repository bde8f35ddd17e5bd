"""The operator's own reconciler, over HTTP, between an API server and a manager with chosen answers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestServer

from tenantzone_operator.cache_manager.client import ManagerAddress, ManagerClient
from tenantzone_operator.cache_manager.reconciler import ManagerReconciler
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.rest import Rest
from tenantzone_operator.kube.store import Store
from tests.operator.manager_updates.servers import Cluster, Manager, Run, login


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def store() -> Store:
    return Store(has_manager=True)


@pytest.fixture
def served() -> str | None:
    """The only namespace that is served; None: all."""
    return None


@pytest.fixture
async def run(cluster: Cluster, manager: Manager, store: Store, served: str | None) -> AsyncIterator[Run]:
    """Starts the operator's part."""
    api_server, server = TestServer(cluster.app()), TestServer(manager.app())
    await api_server.start_server()
    await server.start_server()
    tasks: list[asyncio.Task[None]] = []

    async with Rest(login(api_server)) as rest, ManagerClient(ManagerAddress(str(server.make_url("")), None)) as client:
        reconciler = ManagerReconciler(Api(rest, None), client, store, served)
        yield lambda: tasks.append(asyncio.create_task(reconciler.run()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await api_server.close()
    await server.close()


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes one round follow another at once."""
    monkeypatch.setattr("tenantzone_operator.cache_manager.reconciler.ROUND_SECONDS", 0.01)
    monkeypatch.setattr("tenantzone_operator.cache_manager.reconciler._PAUSE_SECONDS", 0.0)

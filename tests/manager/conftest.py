"""The manager's parts over each store."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from hack.harness.redis_server import TIMEOUT_SECONDS, RedisServer
from tenantzone_manager.index.backend import IndexBackend
from tenantzone_manager.index.redis import RedisBackend
from tenantzone_manager.index.sqlite import SqliteBackend
from tests.manager.playing import Playing

STORES = ("sqlite", "redis")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], IndexBackend]]:
    """Makes backends over one and the same empty store; where it is SQLite, there may be one at a time."""
    if request.param == "sqlite":
        yield lambda: SqliteBackend(tmp_path / "index.db")
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    prefix = f"{tmp_path}/"
    yield lambda: RedisBackend(server.url, prefix, TIMEOUT_SECONDS)


@pytest.fixture
async def redis_store(redis_server: RedisServer, tmp_path: Path) -> Callable[[], IndexBackend]:
    """Makes backends over one and the same empty Redis, as many as wanted."""
    return lambda: RedisBackend(redis_server.url, f"{tmp_path}/", TIMEOUT_SECONDS)


@pytest.fixture
async def playing(store: Callable[[], IndexBackend], tmp_path: Path) -> AsyncIterator[Playing]:
    """A manager over each store, whose books are right at the end."""
    made = await Playing(store(), tmp_path).start()
    yield made
    await made.audit()
    await made.stop()

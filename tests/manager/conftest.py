"""The manager's parts over each store, and its servers."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from hack.harness.redis_server import TIMEOUT_SECONDS, RedisServer
from tenantzone_manager.events.writer import EventSettings
from tenantzone_manager.index.backend import IndexBackend
from tenantzone_manager.index.redis import RedisBackend
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager, Settings
from tenantzone_manager.server import grpc, http
from tenantzone_manager.server.access import StaticTokens
from tenantzone_manager.server.service import Service
from tests.manager.playing import Playing

STORES = ("sqlite", "redis")
TOKENS = {
    "root": {"admin": True},
    "of-ml": {"admin": True, "namespace": "ml"},
    "chat": {"pool": "ml/chat"},
    "other": {"pool": "ml/other"},
}


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


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[CacheManager]:
    made = CacheManager(SqliteBackend(tmp_path / "index.db"), Settings(events=EventSettings(tmp_path / "events.jsonl")))
    await made.start(in_background=False)
    yield made
    await made.stop()


@pytest.fixture
async def ports(manager: CacheManager, tmp_path: Path) -> AsyncIterator[tuple[int, int]]:
    (tmp_path / "tokens").write_text(json.dumps(TOKENS))
    service, authenticator = Service(manager), StaticTokens(tmp_path / "tokens")
    rpc = grpc.server(manager, service, authenticator)
    rpc_port = rpc.add_insecure_port("127.0.0.1:0")
    await rpc.start()
    # As a manager has it; aiohttp's own server for tests ends calls of callers that are gone.
    runner = web.AppRunner(http.application(manager, service, authenticator), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1], rpc_port
    await runner.cleanup()
    await rpc.stop(0)

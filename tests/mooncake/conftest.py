"""A real pool of Mooncake's, a manager that uses it, and a manager's process."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hack.harness.cache_manager import CacheManagerProcess
from hack.third_party.mooncake import MooncakePool
from tenantzone_contract.cache.mooncake import connect
from tenantzone_manager.index.sqlite import SqliteBackend
from tests.manager.playing import INSTANCE, Playing
from tests.shared_tier.engines import LONG, POOLS


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MooncakePool]:
    made = MooncakePool(tmp_path_factory.mktemp("mooncake"))
    made.start_master()
    made.start_node()
    yield made
    made.stop()


@pytest.fixture
def client(pool: MooncakePool):
    """The client of this process, and an empty pool."""
    store = connect(pool.master)
    store.remove_by_regex(".*", True)
    return store


@pytest.fixture
def options(pool: MooncakePool, client) -> dict[str, str]:
    return {"master": pool.master, "prefix": "kv", "http": pool.http}


@pytest.fixture
async def playing(options: dict[str, str], tmp_path: Path) -> AsyncIterator[Playing]:
    made = Playing(SqliteBackend(tmp_path / "index.db"), tmp_path)
    await made.start(with_catalog=False)
    await made.storage("disk")
    await made.storage("pool", "Mooncake", options=options)
    await made.group(["pool"])
    await made.manager.catalog.register_instance(INSTANCE)
    yield made
    await made.audit()
    await made.stop()


@pytest.fixture
def manager(tmp_path: Path, options: dict[str, str]) -> Iterator[CacheManagerProcess]:
    made = CacheManagerProcess(tmp_path / "manager", POOLS, arguments=LONG)
    made.start()
    made.ask("RegisterStorage", storage={"name": "pool", "type": "Mooncake", "options": options})
    made.ask("PutInstanceGroup", group={"name": "ml.chat", "storages": ["pool"], "pools": ["ml/chat"]})
    yield made
    made.kill()

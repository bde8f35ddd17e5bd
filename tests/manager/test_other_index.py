"""A manager goes on with whatever index is in the place of the one that it has opened."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis

from hack.harness.redis_server import TIMEOUT_SECONDS, RedisServer
from tenantzone_manager import spaces
from tenantzone_manager.index import sqlite, sqlite_log
from tenantzone_manager.index.backend import IndexBackend
from tenantzone_manager.index.redis import RedisBackend
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager
from tests.manager.playing import INSTANCE, Playing, backup, eventually, prompt

KEPT, LOST = prompt("kept", 3), prompt("lost", 3)


async def started(index: IndexBackend, folder: Path) -> Playing:
    """A manager that works in the background, too."""
    made = Playing(index, folder)
    made.manager = CacheManager(index)
    await made.manager.start()
    await register(made)
    return made


async def register(playing: Playing, **options: bool) -> None:
    await playing.storage("disk", more=options)
    await playing.group()
    await playing.manager.catalog.register_instance(INSTANCE)


@pytest.fixture
async def playing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Playing]:
    for module, name in (
        *(("tenantzone_manager.manager", f"{each}_SECONDS") for each in ("REFRESH", "RECLAIM")),
        *((module.__name__, "LOOK_SECONDS") for module in (sqlite, sqlite_log)),
    ):
        monkeypatch.setattr(f"{module}.{name}", 0.05)
    made = await started(SqliteBackend(tmp_path / "index.db"), tmp_path)
    yield made
    await made.stop()


def empty(folder: Path) -> None:
    for path in folder.glob("index.db*"):
        path.unlink()
    (folder / "index.db").touch()


async def becomes_other(playing: Playing, before: str) -> None:
    async def is_other() -> bool:
        return playing.manager.storages.owner != before and not playing.manager.catalog.storages

    await eventually(is_other, True)


async def test_one_that_begins_anew_is_another_one(playing: Playing, tmp_path: Path) -> None:
    """What was registered is registered again; storages of the index before it need a takeover, as after a restart."""
    await playing.write(KEPT)
    before = playing.manager.storages.owner
    empty(tmp_path)
    await becomes_other(playing, before)
    await register(playing)
    (state,) = playing.manager.storages.states()
    assert "belongs to the index" in state.problem
    await register(playing, takeover=True)
    await playing.write(KEPT)
    assert await playing.hits(KEPT) == 3


async def test_one_that_is_restored_has_what_it_had_then(playing: Playing, tmp_path: Path) -> None:
    await playing.write(KEPT)
    backup(tmp_path / "index.db", tmp_path / "backup.db")
    await playing.write(LOST)
    (tmp_path / "backup.db").rename(tmp_path / "index.db")

    async def hits() -> int:
        return len((await playing.match(LOST)).blocks)

    await eventually(hits, 0)
    assert await playing.hits(KEPT) == 3
    await playing.write(LOST)
    assert await playing.hits(LOST) == 3
    await playing.audit()


async def test_a_shared_one_that_was_emptied_is_another_one(
    playing: Playing, redis_server: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    shared = await started(RedisBackend(redis_server.url, f"{tmp_path}/", TIMEOUT_SECONDS), tmp_path / "shared")
    before = shared.manager.storages.owner
    with redis.Redis.from_url(redis_server.url) as client:
        client.delete(*client.keys(f"{tmp_path}/*"))
    await becomes_other(shared, before)
    await shared.stop()


async def test_a_name_whose_record_is_lost_alone_is_kept(playing: Playing) -> None:
    before, index = playing.manager.storages.owner, playing.manager.index
    await index.delete(spaces.IDENTITY, [b"name"])

    async def name() -> str:
        (found,) = await index.get_stored(spaces.IDENTITY, [b"name"])
        return found.value if found else ""

    await eventually(name, before)
    assert playing.manager.catalog.storages


async def test_room_at_a_shared_one_does_not_change_with_each_look(redis_server: RedisServer, tmp_path: Path) -> None:
    backend = RedisBackend(redis_server.url, f"{tmp_path}/", TIMEOUT_SECONDS)
    await backend.start(lambda *_: None)
    with redis.Redis.from_url(redis_server.url) as client:

        async def is_short_at(share: float) -> bool:
            # As a server that uses this share of its memory.
            client.config_set("maxmemory", int(client.info("memory")["used_memory"] / share))
            return bool(await backend.keep_reserve())

        # Next to this ballast, the memory that each look itself takes does not count.
        client.set(f"{tmp_path}/ballast", bytes(2**26))
        try:
            found = [await is_short_at(share) for share in (0.963, 0.975, 0.963, 0.965, 0.963, 0.95, 0.963)]
        finally:
            client.config_set("maxmemory", 0)
            client.delete(f"{tmp_path}/ballast")
    await backend.close()
    assert found == [False, True, True, True, True, False, False]

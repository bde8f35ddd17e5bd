"""A manager and engines with a real Mooncake pool. `test_in_its_own_network.py` runs this, isolated from all others."""

import asyncio
import time
import urllib.request
from itertools import count
from urllib.parse import unquote, urlparse

import pytest

from hack.harness.cache_manager import CacheManagerProcess
from hack.third_party.mooncake import MooncakePool
from tenantzone_contract.cache.mooncake import pinned
from tenantzone_manager.core.records import CacheLocation, LocationSpec, State
from tenantzone_manager.core.settings import Storage
from tenantzone_manager.storages.backend import Place, StorageError
from tenantzone_manager.storages.types import make
from tests.manager.moving import moves_down_and_up
from tests.manager.playing import INSTANCE, SIZE, Playing, keys, prompt
from tests.shared_tier.engines import OBJECT, Engine, contents
from tests.shared_tier.engines import prompt as long_prompt

KEYS = long_prompt("a", 4)


async def write(playing: Playing, client, some: list[bytes]) -> None:
    started = await playing.start_write(some)
    for index, location in started.locations.items():
        uri = urlparse(location.specs[0].uri)
        assert (uri.scheme, uri.netloc) == ("mooncake", "127.0.0.1:50051")
        assert client.put(unquote(uri.path[1:]), some[index].ljust(SIZE, b"\0"), pinned()) == 0
    written = [some[index] for index in started.locations]
    await playing.manager.writer.finish_write_cache(INSTANCE, started.write_id, written, [])


async def listed(playing: Playing) -> list[str]:
    (state,) = (each for each in playing.manager.storages.states() if each.storage.name == "pool")
    return [each.name async for some in state.backend.objects() for each in some]


async def test_blocks_are_written_to_a_pool_found_there_and_deleted(playing: Playing, client) -> None:
    await write(playing, client, prompt("a", 3))
    match = await playing.match(prompt("a", 3))
    name = unquote(urlparse(match.blocks[2].locations[0].specs[0].uri).path[1:])
    assert client.get(name).rstrip(b"\0") == b"a0002"
    # The read above holds a lease of Mooncake's, while the manager's own leases have expired.
    await playing.manager.remover.remove_cache(INSTANCE, prompt("a", 3)[1:])
    await playing.settle()
    assert len(await listed(playing)) == 1
    assert (await playing.account("s/pool")).used == SIZE


async def test_what_exists_in_a_pool_is_reported(playing: Playing, client) -> None:
    await write(playing, client, keys("a"))
    (entry,) = await playing.manager.index.get("blocks/team/chat", keys("a"))
    assert entry is not None
    place = Place("team", "chat", b"a", entry.value.locations[0])
    assert await playing.manager.storages.exist("pool", [place, place._replace(key=b"b")]) == [True, False]


async def test_orphans_in_a_pool_are_removed_and_what_is_being_written_is_not(playing: Playing, client) -> None:
    await write(playing, client, keys("a"))
    await playing.start_write(keys("b"))
    for name in ("kv/objects/team/chat/00-late.tp0", "kv/objects/team/chat/else", "other/objects/team/chat/00-a.tp0"):
        client.put(name, b"late", pinned())
    assert await playing.manager.orphans.scan() == 1
    assert len(await listed(playing)) == 1
    assert client.is_exist("other/objects/team/chat/00-a.tp0") == 1


async def test_without_its_http_port_no_orphans_are_looked_for(pool: MooncakePool, client) -> None:
    client.put("kv/objects/team/chat/00-late.tp0", b"late", pinned())
    backend = make(Storage("pool", "Mooncake", {"master": pool.master, "prefix": "kv"}), "me")
    assert [some async for some in backend.objects()] == []
    await backend.close()
    with pytest.raises(StorageError, match="is closed"):
        await backend.check_health()


async def test_blocks_move_between_a_folder_and_a_pool(playing: Playing, client) -> None:
    async def below() -> list[bytes]:
        return [client.get(name) for name in await listed(playing)]

    await moves_down_and_up(playing, "pool", below)


async def test_a_prefix_is_one_indexs_until_another_takes_it_over(options: dict[str, str], client) -> None:
    def storage(**more: object) -> Storage:
        return Storage("pool", "Mooncake", options | more)

    mine, theirs = make(storage(), "mine"), make(storage(), "theirs")
    await mine.check_health()
    await mine.check_health()
    with pytest.raises(StorageError, match=r"127.0.0.1:50051/kv belongs to the index mine, not to theirs"):
        await theirs.check_health()
    taken = make(storage(takeover=True), "theirs")
    await taken.check_health()
    await taken.check_health()
    with pytest.raises(StorageError, match="belongs to the index theirs"):
        await mine.check_health()
    for each in (mine, theirs, taken):
        await each.close()


async def test_a_pool_without_a_master_and_one_without_a_node_are_unhealthy_until_they_are_back(
    pool: MooncakePool, playing: Playing, client
) -> None:
    async def problem() -> str:
        await playing.manager.storages.probe("pool")
        (found,) = (each.problem for each in playing.manager.storages.states() if each.storage.name == "pool")
        return found

    await write(playing, client, keys("a"))
    pool.kill_node()
    pool.await_memory(0)
    assert "can't write to Mooncake" in await problem()
    pool.start_node()
    assert not await problem()

    pool.kill_master()
    assert await problem()
    pool.start_master()
    pool.await_memory(64)
    assert not await problem()
    # Its content is gone, and nothing prevents the removal of its record.
    assert await listed(playing) == []
    await playing.manager.remover.remove_cache(INSTANCE, keys("a"))
    await playing.settle()


async def test_a_master_that_hangs_is_waited_for_no_longer_than_configured(
    pool: MooncakePool, options: dict[str, str], client
) -> None:
    backend = make(Storage("pool", "Mooncake", options), "me")
    await backend.check_health()
    location = CacheLocation("loc", "Mooncake", "pool", State.SERVING, 0.0, (LocationSpec("tp0", SIZE),))
    places = [Place("team", "chat", key, location) for key in prompt("a", 8)]
    pool.pause_master()
    began = time.monotonic()
    code, reported = await asyncio.gather(
        asyncio.to_thread(client.put, "a", b"a", pinned()), backend.exist(places), return_exceptions=True
    )
    waited = time.monotonic() - began
    pool.resume_master()
    assert code != 0
    assert isinstance(reported, StorageError)
    assert 5 <= waited < 30
    await backend.check_health()
    await backend.close()


def test_engines_share_a_pool(
    pool: MooncakePool, manager: CacheManagerProcess, client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONCAKE_MASTER", pool.master)
    first, second = Engine(manager.url, "acme"), Engine(manager.url, "acme")
    first.wait(lambda: first.store("acme", KEYS) == KEYS)
    assert second.load("acme", KEYS) == contents(KEYS)

    names = sorted(name for name in keys_of(pool) if name.startswith("kv/objects/ml.chat/acme"))
    assert [client.get_size(name) for name in names] == [OBJECT] * 4
    for name, content in zip(names[:3], (b"x" * OBJECT, b"short", b""), strict=True):
        assert client.remove(name, True) == 0
        if content:
            assert client.put(name, content, pinned()) == 0
    assert second.load("acme", KEYS) == contents(KEYS[3:])
    assert (second.counts("acme").corrupt, second.counts("acme").vanished) == (2, 1)

    # As when the master restarts: missing blocks are requested once, and written again.
    client.remove_by_regex(".*", True)
    second.wait(lambda: first.store("acme", KEYS) and second.load("acme", KEYS) == contents(KEYS))
    for each in (first, second):
        each.stop()


def test_a_full_pool_takes_nothing_more_and_loses_nothing(
    pool: MooncakePool, manager: CacheManagerProcess, client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONCAKE_MASTER", pool.master)
    engine = Engine(manager.url, "acme")
    engine.wait(lambda: engine.store("acme", KEYS) == KEYS)
    names = (f"filling-{number}" for number in count())
    for size in (4 * 2**20, 64 * 2**10, 2**10, OBJECT):
        while client.put(next(names), bytes(size), pinned()) == 0:
            pass
    assert engine.store("acme", long_prompt("b", 4)) == []
    assert engine.load("acme", KEYS) == contents(KEYS)
    engine.stop()


def test_an_engine_reaches_no_pool_but_the_configured_one(
    manager: CacheManagerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reported in (None, "127.0.0.1:1"):
        monkeypatch.delenv("MOONCAKE_MASTER", raising=False)
        if reported is not None:
            monkeypatch.setenv("MOONCAKE_MASTER", reported)
        engine = Engine(manager.url, "acme")
        assert engine.store("acme", KEYS) == []
        assert engine.counts("acme").write_failures > 0
        engine.stop()


def keys_of(pool: MooncakePool) -> list[str]:
    with urllib.request.urlopen(f"{pool.http}/get_all_keys", timeout=30) as answer:
        return answer.read().decode().split()

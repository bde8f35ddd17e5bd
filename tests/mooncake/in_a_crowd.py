"""A pool shared with others, and many threads. `test_in_its_own_network.py` runs this, isolated from all others."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from hack.third_party.mooncake import MooncakePool
from tenantzone_contract.cache import mooncake
from tenantzone_contract.cache.mooncake import connect, pinned, using
from tenantzone_manager.core.records import CacheLocation, LocationSpec, State
from tenantzone_manager.core.settings import Storage
from tenantzone_manager.storages.backend import Claim, DataStorageBackend, Place, StorageError
from tenantzone_manager.storages.mooncake import MooncakeStorage
from tenantzone_manager.storages.types import make

LOCATION = CacheLocation("loc", "Mooncake", "pool", State.SERVING, 0.0, (LocationSpec("tp0", 4),))


async def listed(backend: DataStorageBackend) -> list[str]:
    return [each.name async for some in backend.objects() for each in some]


async def test_what_others_have_in_the_pool_is_not_listed(options: dict[str, str], client) -> None:
    backend = make(Storage("pool", "Mooncake", options), "me")
    names = (
        "kv/objects/team/chat/00-a.tp0",
        "kv/objects/other/objects/team/chat/00-a.tp0",
        "kv2/objects/team/chat/00-a.tp0",
        "x" * 300_000,
        b"\xff\xfe",
        b"kv/objects/team/\xff/00-a.tp0",
    )
    try:
        for name in names:
            assert client.put(name, b"else", pinned()) == 0
        assert await listed(backend) == ["kv/objects/team/chat/00-a.tp0"]
    finally:
        # A master crashes if it looks up a pattern in such a long name.
        for name in names:
            client.remove(name, True)
    await backend.close()


async def test_an_owner_that_is_no_text_is_another_one(options: dict[str, str], client) -> None:
    backend = make(Storage("pool", "Mooncake", options), "me")
    client.put("kv/owner", b"\xff\xfe", pinned())
    with pytest.raises(StorageError, match="belongs to the index"):
        await backend.check_health()
    await backend.close()


async def test_an_object_that_is_too_long_for_an_owner_is_refused(options: dict[str, str], client) -> None:
    backend = make(Storage("pool", "Mooncake", options), "me")
    client.put("kv/owner", b"a" * 2**20, pinned())
    with pytest.raises(StorageError, match="kv/owner has 1048576 bytes, so it does not contain the name of an owner"):
        await backend.check_health()
    await backend.close()


async def test_who_takes_a_prefix_over_goes_on_until_it_has_it(pool: MooncakePool, client) -> None:
    class Quicker:
        """The previous manager claims it again, because it looks just when its claim is gone."""

        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def remove(self, name: str, force: bool) -> int:
            client.remove(name, force)
            return int(client.put(name, b"mine", pinned()))

    backend = MooncakeStorage(pool.master, "kv", "", Claim("theirs", "pool", takeover=True))
    with pytest.raises(StorageError, match="the index mine claimed"):
        backend._claim(Quicker())
    await backend.check_health()
    assert bytes(client.get("kv/owner")) == b"theirs/pool"
    await backend.close()


async def test_what_was_asked_of_a_storage_is_answered_though_it_is_closed(
    options: dict[str, str], pool: MooncakePool, client
) -> None:
    backend = make(Storage("pool", "Mooncake", options), "me")
    places = [Place("team", "chat", bytes([number]), LOCATION) for number in range(8)]
    for place in places:
        await backend.write(place, LOCATION.specs[0], b"1234")
    with using(pool.master, 256 * 2**20):
        # There is room for none of them, and threads for half of them.
        reads = [asyncio.create_task(backend.read(place, LOCATION.specs[0])) for place in places]
        await asyncio.sleep(0)
        await backend.close()
    assert await asyncio.gather(*reads) == [b"1234"] * 8


def test_a_master_that_does_not_answer_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mooncake, "_ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        for port in (hangs.getsockname()[1], 1):
            # Mooncake's client would let no other thread run meanwhile.
            with pytest.raises(OSError, match=f"127.0.0.1:{port} does not answer"):
                connect(f"127.0.0.1:{port}")


def test_a_process_with_many_threads_moves_all_and_ends_in_the_midst_of_it(pool: MooncakePool, client) -> None:
    command = [sys.executable, "-m", "tests.mooncake.many_threads", pool.master]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (
        0,
        "0 failed\nan object of 4194305 bytes does not fit into the buffer; increase the variable\n",
    ), done.stderr


def test_what_moves_waits_for_room_and_what_asks_does_not(pool: MooncakePool, client) -> None:
    moved = threading.Event()

    def move() -> None:
        with using(pool.master, 2**20):
            moved.set()

    with using(pool.master, 256 * 2**20):
        thread = threading.Thread(target=move)
        thread.start()
        with using(pool.master):
            assert not moved.is_set()
    thread.join()
    assert moved.is_set()

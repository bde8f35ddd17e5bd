"""Many callers at once. Each lock of the manager has a test here that fails without it."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantzone_manager import spaces
from tenantzone_manager.core.settings import InstanceQuota
from tenantzone_manager.index import sqlite_log
from tenantzone_manager.index.backend import Address, IndexBackend
from tenantzone_manager.index.meta_index import Codec, Found, IndexSettings, MetaIndex
from tenantzone_manager.moving.copier import Source
from tenantzone_manager.reclaims.reclaimer import Reclaimed
from tenantzone_manager.storages import s3_objects
from tenantzone_manager.storages.backend import StorageError
from tenantzone_manager.storages.s3_objects import S3Objects
from tests.manager.moving import BOTH, FAST, know_cold_storages, upper
from tests.manager.playing import INSTANCE, SIZE, Playing, prompt

NUMBERS = Codec(msgspec.msgpack.encode, msgspec.msgpack.decode)
RECORDS = [Address("a", b"%d" % number) for number in range(12)]
CALLERS, CALLS, AT_ONCE = 30, 10, 4
ENOUGH_SECONDS = 60


@pytest.fixture
def busy_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's log is copied all the time, so that writers have to wait for it."""
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_SECONDS", 0)


@pytest.fixture
async def index(busy_log: None, store: Callable[[], IndexBackend]) -> AsyncIterator[MetaIndex]:
    made = MetaIndex(store(), lambda _: NUMBERS, IndexSettings())
    await made.start()
    yield made
    await made.close()


async def test_callers_of_one_process_neither_conflict_nor_wait_for_each_other_for_ever(index: MetaIndex) -> None:
    async def call(caller: int) -> None:
        chosen = random.Random(caller)
        for _ in range(CALLS):
            some = chosen.sample(RECORDS, AT_ONCE)

            def add(found: Found) -> dict[Address, Any]:
                return {address: (value or 0) + 1 for address, value in found.items()}

            await index.read_modify_write(some, add)
            # SQLite makes a caller wait only while its log is copied.
            await asyncio.sleep(0)

    async with asyncio.timeout(ENOUGH_SECONDS):
        await asyncio.gather(*(call(caller) for caller in range(CALLERS)))
    found = await index.get("a", [address.key for address in RECORDS])
    assert sum(entry.value for entry in found if entry is not None) == CALLERS * CALLS * AT_ONCE
    assert index.conflicts == 0


async def test_a_floor_is_not_taken_by_the_evictor_and_the_mover_at_once(
    busy_log: None, playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    know_cold_storages(monkeypatch)
    await playing.storage("cold", "Cold")
    await playing.group(BOTH, moves=FAST)
    names = prompt("mine", 8)
    await playing.write(names)
    manager = playing.manager
    carrier = manager.mover._descent._carrier
    entries = await manager.index.get(spaces.blocks_of(INSTANCE), names)
    sources = [
        Source(key, entry.value.locations[0]) for key, entry in zip(names, entries, strict=True) if entry is not None
    ]
    copied = await carrier._copier.copy(INSTANCE, sources, manager.catalog.storages["cold"], Counter())
    assert len(copied) == len(names)
    own = {"chat": {"FileSystem": InstanceQuota(reserved=4 * SIZE)}}
    await playing.group(BOTH, types=upper(8), instances=own)
    await asyncio.gather(manager.reclaimer._evictor.evict(Reclaimed()), carrier.let_go(INSTANCE, sources))
    assert (await playing.account("i/chat/FileSystem")).live == 4 * SIZE


async def test_requests_that_come_at_once_share_one_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[Any] = []
    get_session = s3_objects.get_session

    def counted() -> Any:
        made.append(get_session())
        return made[-1]

    monkeypatch.setattr(s3_objects, "get_session", counted)
    unreachable = {"endpoint_url": "http://127.0.0.1:9", "region_name": "none"}
    credentials = tmp_path / "credentials"
    credentials.write_text("[default]\naws_access_key_id = id\naws_secret_access_key = key\n")
    objects = S3Objects("bucket", unreachable, credentials, 1.0)
    reported = await asyncio.gather(*(objects.read(f"{number}", 1) for number in range(4)), return_exceptions=True)
    assert {type(each) for each in reported} == {StorageError}
    assert len(made) == 1
    objects.close()

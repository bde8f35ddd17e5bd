"""A storage owns its place: no other one writes there, by whatever name it calls the place."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from tenantzone_manager.core.settings import Storage
from tenantzone_manager.index.backend import IndexBackend
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.server.access import Caller
from tenantzone_manager.server.admin_calls import AdminCalls
from tenantzone_manager.server.messages import Empty, StorageResponse
from tenantzone_manager.storages.backend import Claim, PlaceTaken, StorageError
from tenantzone_manager.storages.file_system import FileSystemStorage
from tests.manager.playing import Playing, keys, prompt

ADMIN = Caller("root", is_admin=True)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Playing]:
    """With a storage ``disk``, and the same folder by another name."""
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    made = await Playing(SqliteBackend(tmp_path / "index.db"), tmp_path).start()
    yield made
    await made.stop()


async def listed(playing: Playing) -> dict[str, StorageResponse]:
    answer = await AdminCalls(playing.manager).list_storages(ADMIN, Empty())
    return {each.storage.name: each for each in answer.storages}


@pytest.mark.parametrize("path", ["disk", "link", "disk/../disk"])
@pytest.mark.parametrize("slots", [0, 8])
async def test_a_second_storage_on_a_folder_uses_nothing_there(two: Playing, path: str, slots: int) -> None:
    options = {"root": str(two.root / path), "slots_per_file": slots}
    await two.storage("second", options=options)
    found = await listed(two)
    assert (found["disk"].available, found["second"].available) == (True, False)
    assert "belongs to the storage disk" in found["second"].problem
    assert found["disk"].shares_place_with == ["second"]
    assert found["second"].shares_place_with == ["disk"]
    await two.group(["second", "disk"])
    started = await two.write(keys("a"))
    assert [each.storage for each in started.locations.values()] == ["disk"]
    await two.storage("second", options={**options, "takeover": True})
    assert not (await listed(two))["second"].available


async def test_who_outlives_the_owner_gets_its_place(two: Playing) -> None:
    await two.storage("second", options={"root": str(two.root / "link")})
    await two.group(["second"])
    manager = two.manager
    await manager.catalog.remove_storage("disk")
    await manager.storages.keep(manager.catalog.storages.values())
    await manager.storages.probe("second")
    found = await listed(two)
    assert found["second"].available
    assert found["second"].shares_place_with == []
    await two.write(prompt("p", 3))
    assert await two.hits(prompt("p", 3)) == 3


async def test_an_owner_that_is_registered_again_keeps_its_place(two: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    await two.storage("second", options={"root": str(two.root / "link")})
    await two.group(["second"])
    manager = two.manager
    disk = manager.catalog.storages["disk"]
    await manager.catalog.remove_storage("disk")
    await manager.storages.keep(manager.catalog.storages.values())
    with monkeypatch.context() as read_only:
        reported = [PlaceTaken("/mnt", "disk", "second"), StorageError("it can't be written")]
        read_only.setattr(manager.storages.backend("second"), "check_health", AsyncMock(side_effect=reported))
        await manager.storages.probe("second")
    await manager.catalog.put_storage(disk)
    await manager.storages.keep(manager.catalog.storages.values())
    await manager.storages.probe("second")
    found = await listed(two)
    assert (found["disk"].available, found["second"].available) == (True, False)


async def test_an_owner_file_that_was_not_written_to_its_end_is_made_anew(two: Playing) -> None:
    owner = two.root / "disk" / "owner"
    text = owner.read_text()
    owner.write_text("")
    soon = time.time() + 3600
    os.utime(owner, (soon, soon))
    await two.manager.storages.probe("disk")
    assert not two.manager.storages.is_available("disk"), "another storage may be writing it"
    os.utime(owner, (0, 0))
    await two.manager.storages.probe("disk")
    assert two.manager.storages.is_available("disk")
    assert owner.read_text() == text


async def test_whether_an_owner_file_was_abandoned_does_not_depend_on_the_clock_here(
    two: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = two.root / "disk" / "owner"
    owner.write_text("")
    soon = time.time() + 60
    os.utime(owner, (soon, soon))
    monkeypatch.setattr(time, "time", lambda: soon + 3600)
    await two.manager.storages.probe("disk")
    assert not two.manager.storages.is_available("disk"), "another storage may be writing it"


async def test_checks_at_the_same_time_claim_a_folder_together(tmp_path: Path) -> None:
    for number in range(50):
        root = tmp_path / str(number)
        root.mkdir()
        storage = FileSystemStorage(root, 0, Claim("index", "disk", takeover=False))
        await asyncio.gather(*(storage.check_health() for _ in range(8)))
        assert (root / "owner").read_text() == "index/disk"


async def test_the_first_keeps_its_place_when_the_manager_starts_again(two: Playing) -> None:
    # By its name it is tried first.
    await two.storage("another", options={"root": str(two.root / "link")})
    await two.stop()
    again = Playing(SqliteBackend(two.root / "index.db"), two.root)
    await again.start(with_catalog=False)
    found = await listed(again)
    assert (found["disk"].available, found["another"].available) == (True, False)
    await again.stop()
    await two.manager.start(in_background=False)


async def test_managers_of_one_index_agree_whose_a_place_is(
    redis_store: Callable[[], IndexBackend], tmp_path: Path
) -> None:
    first = await Playing(redis_store(), tmp_path).start()
    second = await Playing(redis_store(), tmp_path).start(with_catalog=False)
    third = Storage("third", "FileSystem", {"root": str(tmp_path / "disk")})
    await second.manager.catalog.put_storage(third)
    # Before it has heard of the existing one.
    await second.manager.storages.keep([third])
    assert not second.manager.storages.is_available("third")
    await second.manager.catalog.load()
    await second.manager.storages.keep(second.manager.catalog.storages.values())
    for each in (first, second):
        assert each.manager.storages.is_available("disk")
        await each.stop()


def test_a_place_of_another_index_is_taken_once_and_only_if_that_is_said() -> None:
    with pytest.raises(StorageError, match="belongs to the index lost, not to mine; register the storage with"):
        Claim("mine", "disk", takeover=False).has_to_write("lost/disk", "/mnt")
    claim = Claim("mine", "disk", takeover=True)
    assert claim.has_to_write("lost/disk", "/mnt")
    assert not claim.has_to_write("mine/disk", "/mnt")
    claim.is_made()
    with pytest.raises(StorageError, match="belongs to the index lost"):
        claim.has_to_write("lost/disk", "/mnt")


def test_no_takeover_takes_a_place_of_the_same_index() -> None:
    with pytest.raises(PlaceTaken, match="change the options of second, or remove disk first"):
        Claim("mine", "second", takeover=True).has_to_write("mine/disk", "/mnt")


async def test_an_owner_file_is_quoted_in_one_short_line_whatever_it_has(tmp_path: Path) -> None:
    (tmp_path / "owner").write_bytes(b"forged\n\xff\x1b[2J" + b"a" * 2**20)
    storage = FileSystemStorage(tmp_path, 0, Claim("mine", "disk", takeover=False))
    with pytest.raises(StorageError, match="belongs to the index forged") as refused:
        await storage.check_health()
    assert len(str(refused.value)) < 2000
    assert str(refused.value).isprintable()

"""Storages that do the unexpected, and the orphan scan during writes of other managers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenantzone_manager.core.settings import Storage
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.storages.backend import Claim, StorageError, StoredObject
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.storages.file_system import FileSystemStorage
from tests.manager.playing import INSTANCE, Clock, Playing, files, keys


class Odd(FileSystemStorage):
    """Raises what no backend may."""

    async def check_health(self) -> None:
        raise UnicodeError("what was that?")


async def test_a_storage_that_raises_anything_is_unhealthy_and_the_others_are_used(tmp_path: Path) -> None:
    def made(storage: Storage, owner: str) -> FileSystemStorage:
        return (Odd if storage.name == "odd" else FileSystemStorage)(
            tmp_path / storage.name, 0, Claim(owner, storage.name, takeover=False)
        )

    for name in ("odd", "well"):
        (tmp_path / name).mkdir()
    storages = DataStorageManager("me", make_backend=made)
    await storages.keep([Storage("odd", "FileSystem"), Storage("well", "FileSystem")])
    assert [each.name for each in storages.get_available_storage(["odd", "well"])] == ["well"]
    (problem,) = (each.problem for each in storages.states() if each.storage.name == "odd")
    assert "what was that?" in problem
    await storages.close()


async def test_a_storage_that_can_not_be_listed_keeps_no_orphans_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    clock.now = 1e12  # files are of long ago
    playing = await Playing(SqliteBackend(tmp_path / "index.db"), tmp_path, clock).start(with_catalog=False)
    for name in ("first", "second"):
        await playing.storage(name)
        orphan = tmp_path / name / "objects/team/chat/00/00ff-late.tp0"
        orphan.parent.mkdir(parents=True)
        orphan.write_bytes(b"late")
    first, _ = (each.backend for each in playing.manager.storages.states())

    async def fail() -> AsyncIterator[list[StoredObject]]:
        for nothing in ():
            yield nothing
        raise StorageError("not now")

    monkeypatch.setattr(first, "objects", fail)
    assert await playing.manager.orphans.scan() == 1
    assert [path.parts[-6] for path in files(tmp_path)] == ["first"]
    await playing.stop()


async def test_the_orphan_scan_takes_nothing_that_another_manager_has_just_written(
    redis_store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    clock.now = 1e12  # files are of long ago
    first = await Playing(redis_store(), tmp_path, clock).start()
    second = await Playing(redis_store(), tmp_path, clock).start(with_catalog=False)
    await first.write(keys("a"))
    await first.manager.remover.remove_cache(INSTANCE, keys("a"))
    assert await first.manager.index.get("blocks/team/chat", keys("a"))
    # The word of what others change gets lost from now on.
    monkeypatch.setattr(first.manager.index.cache, "invalidate", lambda *_: None)
    await second.write(keys("a"))
    assert len(files(tmp_path)) == 2
    assert await first.manager.orphans.scan() == 0
    assert len(files(tmp_path)) == 2
    for each in (first, second):
        await each.stop()

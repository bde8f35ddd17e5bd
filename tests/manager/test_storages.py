"""Storages that do what nobody has foreseen, and the orphan scan beside writes of other managers."""

from pathlib import Path

import pytest

from tenantzone_manager.core.settings import Storage
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.storages.file_system import FileSystemStorage
from tests.manager.playing import INSTANCE, Clock, Playing, files, keys


class Odd(FileSystemStorage):
    """Raises what no backend may."""

    async def check_health(self) -> None:
        raise UnicodeError("what was that?")


async def test_a_storage_that_raises_anything_is_unhealthy_and_the_others_are_used(tmp_path: Path) -> None:
    def made(storage: Storage, owner: str) -> FileSystemStorage:
        return (Odd if storage.name == "odd" else FileSystemStorage)(tmp_path, 0, owner, False)

    storages = DataStorageManager("me", make_backend=made)
    await storages.keep([Storage("odd", "FileSystem"), Storage("well", "FileSystem")])
    assert [each.name for each in storages.get_available_storage(["odd", "well"])] == ["well"]
    (problem,) = (each.problem for each in storages.standings() if each.storage.name == "odd")
    assert "what was that?" in problem
    await storages.close()


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

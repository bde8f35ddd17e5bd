"""A write that one storage fails is tried at another; leftovers of the first attempt are not taken for the second."""

from typing import Any

import pytest

from tenantzone_manager.core.records import State
from tenantzone_manager.core.writing import Ending
from tenantzone_manager.storages.backend import StorageError
from tests.manager.playing import Playing, keys


@pytest.fixture
async def twice(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> Playing:
    """Of two storages the first one neither takes nor deletes anything."""
    await playing.storage("second")
    await playing.group(["disk", "second"])
    for call in ("create", "delete"):
        real = getattr(playing.manager.storages, call)

        async def fail(name: str, *arguments: Any, real: Any = real) -> None:
            if name == "disk":
                raise StorageError("it fails")
            await real(name, *arguments)

        monkeypatch.setattr(playing.manager.storages, call, fail)
    return playing


@pytest.mark.parametrize("is_finished", [False, True])
async def test_a_first_attempt_that_can_not_be_deleted_waits(twice: Playing, is_finished: bool) -> None:
    """And is not taken for the second one, which would have the reclaimer ask for it without end."""
    started = await twice.start_write(keys("one"))
    first, second = await twice.locations("one")
    assert (first.storage, first.state, second.storage) == ("disk", State.DELETING, "second")
    if is_finished:
        assert await twice.finish(keys("one"), started) == [Ending.SERVING]
    await twice.reclaim()
    waiting, kept = await twice.locations("one")
    assert (waiting.id, waiting.storage) == (first.id, "disk")
    assert waiting.until > twice.clock()
    assert (kept.id, kept.storage) == (second.id, "second")


async def test_a_first_attempt_outlasts_the_second_one(twice: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    started = await twice.start_write(keys("one"))
    await twice.finish(keys("one"), started)
    await twice.manager.remover.remove_cache(await twice.manager.catalog.instance("chat"), keys("one"))
    await twice.settle()
    (left,) = await twice.locations("one")
    assert left.storage == "disk"
    assert await twice.finish(keys("one"), started) == [Ending.EXPIRED]
    monkeypatch.undo()
    await twice.settle()
    assert (await twice.account("g/team")).used == 0

"""A writer's time begins when it learns where to write, and does not run while its own calls wait for their turns."""

import pytest

from tenantzone_manager.core.writing import Ending, WriteStatus
from tenantzone_manager.turns import IN_BACKGROUND, WRITE_AT_ONCE
from tests.manager.playing import Playing, keys, prompt

LONG = prompt("long", 3 * WRITE_AT_ONCE)
SECONDS = 60.0
"""That a writer has."""


@pytest.fixture
async def crowded(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> Playing:
    """Each call waits for its turn for most of a writer's time, and the reclaimer runs meanwhile."""
    take = playing.manager.turns.take

    async def take_late(caller: str) -> None:
        if caller != IN_BACKGROUND:
            playing.clock.sleep(0.75 * SECONDS)
            await playing.manager.reclaim()
        await take(caller)

    monkeypatch.setattr(playing.manager.turns, "take", take_late)
    return playing


async def test_it_begins_with_the_answer(crowded: Playing) -> None:
    started = await crowded.start_write(LONG, write_seconds=SECONDS)
    assert set(started.statuses) == {WriteStatus.WRITE}
    assert started.deadline == crowded.clock() + SECONDS
    await crowded.reclaim(after=SECONDS - 1)
    assert (await crowded.start_write(LONG)).statuses == [WriteStatus.WRITING] * len(LONG)
    await crowded.reclaim(after=4 * SECONDS)
    assert (await crowded.start_write(LONG[:1])).statuses == [WriteStatus.WRITE]


async def test_it_does_not_run_while_the_write_is_being_finished(crowded: Playing) -> None:
    started = await crowded.start_write(LONG, write_seconds=SECONDS)
    crowded.clock.sleep(SECONDS - 1)
    assert await crowded.finish(LONG, started) == [Ending.SERVING] * len(LONG)
    assert await crowded.hits(LONG) == len(LONG)


async def test_a_storage_that_is_slow_takes_none_of_it(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    create = playing.manager.storages.create

    async def create_slowly(*arguments: object) -> None:
        playing.clock.sleep(25.0)
        await create(*arguments)

    monkeypatch.setattr(playing.manager.storages, "create", create_slowly)
    started = await playing.start_write(keys("one"), write_seconds=SECONDS)
    assert started.deadline == playing.clock() + SECONDS
    await playing.reclaim(after=SECONDS - 1)
    assert await playing.finish(keys("one"), started) == [Ending.SERVING]


async def test_an_interrupted_call_leaves_nothing_that_lasts(crowded: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("interrupted")

    monkeypatch.setattr(crowded.manager.storages, "create", fail)
    with pytest.raises(RuntimeError):
        await crowded.start_write(LONG, write_seconds=SECONDS)
    await crowded.reclaim(after=2 * SECONDS)
    assert (await crowded.account("g/team")).deleting > 0
    await crowded.settle()
    assert (await crowded.account("g/team")).used == 0

"""Who asks meanwhile has a turn, however much is looked at, written or taken away: over an index in a file, which
gives none.

No clocks: it is counted for how many blocks something is done between two turns. What that takes, a bench measures.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tenantzone_manager.core.deadlines import CALL_SECONDS
from tenantzone_manager.core.writing import WriteStatus
from tenantzone_manager.index.backend import Commit
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.moving.cold import TURN
from tenantzone_manager.reads.hits import KeyGroup
from tenantzone_manager.reclaims.removing import AT_ONCE
from tenantzone_manager.turns import IN_BACKGROUND, READ_AT_ONCE, ROUNDS_BETWEEN, WRITE_AT_ONCE, Turns
from tests.manager.moving import BOTH, FAST, know_cold_storages, upper
from tests.manager.playing import INSTANCE, SIZE, Playing, prompt

ENDS = 8 * TURN
"""Prompts of one block."""


@pytest.fixture
async def playing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Playing]:
    know_cold_storages(monkeypatch)
    made = await Playing(SqliteBackend(tmp_path / "index.db"), tmp_path).start()
    await made.storage("cold", "Cold")
    yield made
    await made.audit()
    await made.stop()


async def turns(work: Callable[[], Awaitable[Any]]) -> int:
    """How often another task has a turn while this is done."""
    had = 0

    async def have() -> None:
        nonlocal had
        while True:
            await asyncio.sleep(0)
            had += 1

    others = asyncio.create_task(have())
    await asyncio.sleep(0)
    try:
        had = 0
        await work()
        return had
    finally:
        others.cancel()


async def write(playing: Playing, names: list[bytes]) -> None:
    """Bytes are not needed: nothing of it is copied."""
    started = await playing.start_write(names)
    await playing.manager.writer.finish_write_cache(INSTANCE, started.write_id, names, [])


async def blocks_of(playing: Playing, names: list[bytes]) -> list[Any]:
    return [entry.value for entry in await playing.manager.index.get("blocks/team/chat", names) if entry]


async def use(playing: Playing, prompts: list[list[bytes]]) -> None:
    """Have them be hot."""
    for names in prompts * 4:
        await playing.match(names)
    await playing.manager.touches.flush()


async def full_of_what_is_as_hot(playing: Playing, below: int) -> None:
    """A higher type without room, and `below` prompts in the lower type that are as hot as those in the higher one."""
    lower = [[f"l{number:04}".encode()] for number in range(below)]
    higher = [[f"h{number:04}".encode()] for number in range(ENDS)]
    await playing.group(["cold"])
    for names in lower:
        await write(playing, names)
    await playing.group(BOTH, moves=FAST, types=upper(2 * ENDS, 0.5))
    for names in higher:
        await write(playing, names)
    await use(playing, higher + lower)


async def test_a_long_prompt_that_is_hot_is_walked_through_with_turns_for_others(playing: Playing) -> None:
    await playing.group(BOTH, moves=FAST)
    names = prompt("long", 8 * TURN)
    await write(playing, names)
    await use(playing, [names])
    assert await turns(playing.manager.mover.move) >= 8


async def test_what_may_make_room_is_looked_for_with_turns_for_others(playing: Playing) -> None:
    await full_of_what_is_as_hot(playing, 1)
    assert await turns(playing.manager.mover.move) >= ENDS // TURN


async def test_what_would_make_room_for_nothing_is_looked_for_once(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full_of_what_is_as_hot(playing, 20)
    asked: list[str] = []
    lowest = playing.manager.index.lowest

    async def counted(rank: str, *arguments: Any) -> Any:
        asked.append(rank)
        return await lowest(rank, *arguments)

    monkeypatch.setattr(playing.manager.index, "lowest", counted)
    assert not (await playing.manager.mover.move()).blocks
    assert len(asked) == len(set(asked)) > 0


PARTS = 8


async def test_many_blocks_are_written_and_found_with_turns_for_others(playing: Playing) -> None:
    names = prompt("long", PARTS * READ_AT_ONCE)
    began = await turns(lambda: playing.start_write(names))
    # The blocks are looked up, their write status follows, and room is reserved.
    assert began >= 2 * (PARTS - 1) + PARTS * READ_AT_ONCE // WRITE_AT_ONCE - 1
    started = await playing.start_write(names)
    assert set(started.statuses) == {WriteStatus.WRITING}
    (write_id,) = {location.id for block in await blocks_of(playing, names) for location in block.locations}
    finish = playing.manager.writer.finish_write_cache
    assert await turns(lambda: finish(INSTANCE, write_id, names, [])) >= PARTS * READ_AT_ONCE // WRITE_AT_ONCE - 1
    for query in ("prefix", "key"):
        assert await turns(partial(playing.match, names, query=query)) >= PARTS - 1
        assert len((await playing.match(names, query=query)).blocks) == len(names)
    assert await turns(partial(playing.match, names, query="window", window=len(names))) >= PARTS - 1
    get_hit = playing.manager.reader.get_hit
    for group in (KeyGroup(b""), KeyGroup(b"", len(names))):
        assert await turns(partial(get_hit, INSTANCE, names, [group])) >= PARTS - 1
    again = await playing.start_write(names)
    assert set(again.statuses) == {WriteStatus.SERVING}


async def test_what_is_written_as_a_whole_is_undone_with_turns_for_others(playing: Playing) -> None:
    names = prompt("whole", PARTS * WRITE_AT_ONCE)
    await playing.group(limit=len(names) * SIZE)

    async def while_another_one_takes_its_room() -> None:
        whole = asyncio.create_task(playing.start_write(names, whole=True))
        await asyncio.sleep(0)
        assert (await playing.start_write([b"other"])).locations
        started = await whole
        assert not started.locations
        assert not started.write_id
        assert set(started.statuses) == {WriteStatus.NO_ROOM}

    assert await turns(while_another_one_takes_its_room) >= 2 * PARTS - 2


async def test_nothing_is_begun_of_a_whole_that_has_no_room(playing: Playing) -> None:
    names = prompt("whole", PARTS * WRITE_AT_ONCE)
    await playing.group(limit=(len(names) - 1) * SIZE)
    assert set((await playing.start_write(names, whole=True)).statuses) == {WriteStatus.NO_ROOM}
    assert (await playing.account("g/team")).used == 0


async def test_a_reader_of_what_a_late_part_of_a_call_removes_has_a_lease(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = prompt("long", 2 * WRITE_AT_ONCE)
    started = await playing.start_write(names)
    take, lease = playing.manager.turns.take, playing.manager.settings.timing.lease

    async def take_late(caller: str) -> None:
        await take(caller)
        playing.clock.sleep(2 * lease)

    monkeypatch.setattr(playing.manager.turns, "take", take_late)
    await playing.manager.writer.finish_write_cache(INSTANCE, started.write_id, [], names)
    (last,) = await blocks_of(playing, names[-1:])
    assert last.locations[0].until >= playing.clock() + lease


async def test_no_part_of_a_call_changes_more_blocks_than_it_may(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[int] = []
    commit = playing.manager.index.backend.commit

    async def counted(changes: Commit) -> None:
        changed.append(len(changes.changes))
        await commit(changes)

    monkeypatch.setattr(playing.manager.index.backend, "commit", counted)
    names = prompt("long", 4 * WRITE_AT_ONCE)
    await write(playing, names)
    await playing.match(names, query="key")
    await playing.manager.touches.flush()
    await playing.manager.remover.remove_cache(INSTANCE, names)
    # With each part its first block's parent.
    assert max(changed) <= 2 * WRITE_AT_ONCE


async def test_what_dead_writers_have_left_goes_with_turns_for_others(playing: Playing) -> None:
    names = prompt("dead", PARTS * WRITE_AT_ONCE)
    await playing.start_write(names)
    playing.clock.sleep(playing.manager.settings.timing.write + CALL_SECONDS)
    assert await turns(playing.manager.reclaim) >= PARTS * ROUNDS_BETWEEN
    assert (await playing.account("i/chat/FileSystem")).deleting == len(names) * SIZE
    await playing.settle()
    assert (await playing.account("i/chat/FileSystem")).used == 0


async def test_callers_take_turns_however_much_each_asks_for() -> None:
    turns_, had = Turns(), list[str]()

    async def work(caller: str, parts: int) -> None:
        for _ in range(parts):
            await turns_.take(caller)
            had.append(caller)

    greedy = [asyncio.create_task(work("greedy", 10)) for _ in range(50)]
    await turns_.take("before")
    before = len(had)
    await work("modest", 10)
    assert had[before:].count("greedy") <= 10 + 1
    greedy[0].cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    assert had.count("greedy") >= 49 * 10


async def test_small_calls_have_rounds_of_the_event_loop_between_two_turns() -> None:
    turns_, had = Turns(), list[int]()

    async def work(number: int) -> None:
        await turns_.take(f"caller {number}")
        had.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(20)]
    for _ in range(20):
        before = len(had)
        for _ in range(ROUNDS_BETWEEN):
            await asyncio.sleep(0)
        assert len(had) - before <= 1
    await asyncio.gather(*tasks)
    assert had == list(range(20))


async def test_what_is_evicted_waits_for_no_turns_of_its_pool(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(playing, prompt("long", 4 * AT_ONCE))
    await playing.group(limit=8 * AT_ONCE * SIZE, watermark=0.125)
    take = playing.manager.turns.take
    callers: set[str] = set()

    async def noted(caller: str) -> None:
        callers.add(caller)
        await take(caller)

    monkeypatch.setattr(playing.manager.turns, "take", noted)
    assert (await playing.manager.reclaim()).evicted.blocks == 3 * AT_ONCE
    assert callers == {IN_BACKGROUND}


async def test_much_is_trimmed_with_turns_for_others(playing: Playing) -> None:
    await write(playing, prompt("long", 4 * AT_ONCE))
    assert await turns(lambda: playing.manager.remover.trim_cache(INSTANCE, "FileSystem")) >= 4

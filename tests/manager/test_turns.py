"""Who asks meanwhile has a turn, however much is looked at or taken away: over an index in a file, which gives none."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.moving.cold import TURN
from tenantzone_manager.removing import AT_ONCE
from tests.manager.moving import BOTH, FAST, know_cold_storages, upper
from tests.manager.playing import INSTANCE, Playing, prompt

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
    """How often somebody else has a turn while this is done."""
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


async def use(playing: Playing, prompts: list[list[bytes]]) -> None:
    """Have them be hot."""
    for names in prompts * 4:
        await playing.match(names)
    await playing.manager.touches.flush()


async def full_of_what_is_as_hot(playing: Playing, below: int) -> None:
    """A higher type that has no room, and so many prompts below that are as hot as what lies there."""
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


async def test_much_is_trimmed_with_turns_for_others(playing: Playing) -> None:
    await write(playing, prompt("long", 4 * AT_ONCE))
    assert await turns(lambda: playing.manager.remover.trim_cache(INSTANCE, "FileSystem")) >= 4

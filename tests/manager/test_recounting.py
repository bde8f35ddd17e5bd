"""Bytes of a record that was dropped are given back to its accounts, whatever changes meanwhile."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tenantzone_manager import spaces
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.index.backend import Address, Change, Commit, IndexBackend
from tenantzone_manager.turns import IN_BACKGROUND, READ_AT_ONCE
from tests.manager.playing import INSTANCE, SIZE, Playing, prompt

OTHER = Instance("other", "team", 16, (Spec("tp0", SIZE),))
KEPT, BROKEN = prompt("kept", 6), prompt("broken", 4)
ACCOUNTS = ("i/chat/FileSystem", "g/team/FileSystem", "g/team", "s/disk")


@pytest.fixture
async def written(playing: Playing) -> Playing:
    """Two instances with blocks, and the index's own record of some of them broken."""
    await playing.manager.catalog.register_instance(OTHER)
    await playing.write(KEPT, OTHER)
    await playing.write(KEPT)
    await playing.write(BROKEN)
    assert await playing.manager.recount.recount() == 0
    await break_(playing, BROKEN)
    return playing


async def break_(playing: Playing, names: list[bytes]) -> None:
    space, index = spaces.blocks_of(INSTANCE), playing.manager.index
    for name, stored in zip(names, await index.backend.get(space, names), strict=True):
        assert stored is not None
        await index.backend.commit(Commit([Change(Address(space, name), stored, stored[:-1])]))
    index.forget()


async def used(playing: Playing) -> list[int]:
    return [(await playing.account(name)).used // SIZE for name in ACCOUNTS]


async def test_what_a_dropped_record_used_is_given_back(written: Playing, caplog: pytest.LogCaptureFixture) -> None:
    """Found by whoever reads it, or by the recount itself."""
    caplog.set_level(logging.INFO, "tenantzone_manager")
    assert not (await written.match(BROKEN)).blocks
    assert await used(written) == [10, 16, 16, 16]
    assert await written.manager.recount.recount_if_needed() > 0
    for _ in range(3):
        await written.manager.recount.recount_if_needed()
    assert await used(written) == [6, 12, 12, 12]
    assert written.manager.index.corrupt == 4
    assert f"i/chat/FileSystem uses {4 * SIZE} bytes less than was counted" in caplog.text
    await written.write(BROKEN)
    assert await used(written) == [10, 16, 16, 16]


async def test_nothing_is_looked_at_while_nothing_was_dropped(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await playing.write(KEPT)
    await playing.manager.recount.recount()
    scans: list[str] = []
    monkeypatch.setattr(playing.manager.index.backend, "scan", lambda space, *_: scans.append(space))
    assert await playing.manager.recount.recount_if_needed() == 0
    assert not scans


@pytest.fixture
async def changing(written: Playing, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Awaitable[Any]]]:
    """What is done one after the other, each when the recount has its next turn."""
    work: list[Callable[[], Awaitable[Any]]] = []
    take = written.manager.turns.take

    async def take_after_others(caller: str) -> None:
        if caller == IN_BACKGROUND and work and not busy:
            busy.append(True)
            await work.pop(0)()
            busy.clear()
        await take(caller)

    busy: list[bool] = []
    monkeypatch.setattr(written.manager.turns, "take", take_after_others)
    monkeypatch.setattr("tenantzone_manager.recounting.READ_AT_ONCE", 2)
    return work


async def test_what_changes_meanwhile_is_counted_once(
    written: Playing, changing: list[Callable[[], Awaitable[Any]]]
) -> None:
    """Before and behind the place that is looked at, in this instance and in another one."""
    await written.match(BROKEN)
    before, behind = prompt("a", 3), prompt("z", 3)
    remove = written.manager.remover.remove_cache

    async def settle() -> None:
        await written.settle()

    changing += [
        lambda: written.write(before),
        lambda: written.write(behind, OTHER),
        lambda: remove(OTHER, KEPT),
        lambda: written.write(behind),
        lambda: remove(INSTANCE, before),
        settle,
        lambda: written.write(before, OTHER),
        lambda: remove(INSTANCE, KEPT),
        settle,
    ]
    for _ in range(200):
        await written.manager.recount.recount_if_needed()
        if not changing and await written.manager.recount.recount_if_needed() == 0:
            break
    for _ in range(70):
        # Over a store that others change, too, it is made again when it was spoilt.
        await written.manager.recount.recount_if_needed()
    assert await used(written) == [3, 9, 9, 9]


async def test_records_are_looked_at_a_part_at_a_time(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    await playing.write(prompt("many", 3 * READ_AT_ONCE))
    counts: list[int] = []
    scan = playing.manager.index.backend.scan

    async def counted(space: str, cursor: bytes, count: int) -> Any:
        found = await scan(space, cursor, count)
        counts.append(len(found[0]))
        return found

    monkeypatch.setattr(playing.manager.index.backend, "scan", counted)
    turns: list[str] = []
    take = playing.manager.turns.take

    async def noted(caller: str) -> None:
        turns.append(caller)
        await take(caller)

    monkeypatch.setattr(playing.manager.turns, "take", noted)
    await playing.manager.recount.recount()
    assert sum(counts) == 3 * READ_AT_ONCE
    assert turns.count(IN_BACKGROUND) >= len(counts)


async def test_a_manager_that_starts_corrects_what_the_one_before_it_left(
    store: Callable[[], IndexBackend], tmp_path: Path
) -> None:
    """An index in a file has no other manager that knows what was dropped."""
    playing = await Playing(store(), tmp_path).start()
    is_shared = playing.manager.index.backend.is_shared
    await playing.write(BROKEN)
    await break_(playing, BROKEN)
    await playing.match(BROKEN)
    await playing.stop()
    playing = await Playing(store(), tmp_path).start()
    await playing.manager.recount.recount_if_needed()
    assert await used(playing) == ([4, 4, 4, 4] if is_shared else [0, 0, 0, 0])
    await playing.stop()

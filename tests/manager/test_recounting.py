"""What a dropped record used is given back, and its parent counts it no more, whatever changes meanwhile."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.client import PubSub

from tenantzone_manager import spaces
from tenantzone_manager.core import books, recounting
from tenantzone_manager.core.draft import child_steps, with_steps
from tenantzone_manager.core.quota import Charge
from tenantzone_manager.core.records import Block
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


async def break_(playing: Playing, names: list[bytes], space: str = spaces.blocks_of(INSTANCE)) -> None:
    index = playing.manager.index
    for name, stored in zip(names, await index.backend.get(space, names), strict=True):
        assert stored is not None
        await index.backend.commit(Commit([Change(Address(space, name), stored, stored[:-1])]))
    index.forget()


async def used(playing: Playing) -> list[int]:
    return [(await playing.account(name)).used // SIZE for name in ACCOUNTS]


async def blocks(playing: Playing, instance: Instance) -> dict[bytes, Block]:
    found, _ = await playing.manager.index.scan(spaces.blocks_of(instance), b"", 10_000)
    return dict(found)


async def wrong_parents(playing: Playing) -> list[bytes]:
    """Blocks that count other children than those that name them."""
    wrong: list[bytes] = []
    for instance in (INSTANCE, OTHER):
        there = await blocks(playing, instance)
        children: dict[bytes, dict[str, int]] = {}
        for block in there.values():
            children[block.parent] = with_steps(children.get(block.parent, {}), child_steps(None, block))
        wrong += [key for key, block in there.items() if block.children != children.get(key, {})]
    return wrong


async def test_what_a_dropped_record_used_is_given_back(written: Playing, caplog: pytest.LogCaptureFixture) -> None:
    """Found by a reader, or by the recount itself."""
    caplog.set_level(logging.INFO, "tenantzone_manager")
    assert not (await written.match(BROKEN)).blocks
    assert await used(written) == [10, 16, 16, 16]
    assert await written.manager.recount.recount_if_needed() > 0
    for _ in range(3):
        await written.manager.recount.recount_if_needed()
    assert await used(written) == [6, 12, 12, 12]
    assert written.manager.index.corrupt == 4
    assert f"corrected the bytes of i/chat/FileSystem by -{4 * SIZE} used, +0 being deleted" in caplog.text
    assert (await written.account(books.DROPPED)).deleting == 0, "nothing is recounted again for them"
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


@pytest.mark.parametrize("is_written_again", [True, False])
async def test_a_parent_counts_no_dropped_child(playing: Playing, is_written_again: bool) -> None:
    """So it is the end of a prefix, and goes, once those that are there have gone."""
    names = prompt("prompt", 5)
    await playing.write(names)
    await break_(playing, names[2:3])
    assert await playing.hits(names) == 2
    if is_written_again:
        await playing.write(names)
    assert await wrong_parents(playing)
    assert await playing.manager.recount.recount_if_needed() > 0
    assert not await wrong_parents(playing)
    await playing.manager.remover.trim_cache(INSTANCE, "FileSystem")
    await playing.settle()
    assert not await blocks(playing, INSTANCE)


async def test_a_hollow_parent_of_a_dropped_child_goes(playing: Playing) -> None:
    names = prompt("prompt", 3)
    await playing.write(names)
    await playing.manager.remover.remove_cache(INSTANCE, names[:2])
    await playing.settle()
    await break_(playing, names[2:])
    assert set(await blocks(playing, INSTANCE)) == set(names[:2])
    await playing.manager.recount.recount_if_needed()
    assert not await blocks(playing, INSTANCE)


async def test_blocks_of_an_instance_whose_record_was_dropped_use_their_storage(playing: Playing) -> None:
    """It may be registered again, with all of its blocks."""
    await playing.write(KEPT)
    await break_(playing, [INSTANCE.name.encode()], spaces.INSTANCES)
    await playing.manager.refresh()
    assert not playing.manager.catalog.instances
    await playing.manager.recount.recount_if_needed()
    assert await used(playing) == [6, 6, 6, 6]
    await playing.manager.catalog.register_instance(INSTANCE)
    await playing.manager.remover.remove_cache(INSTANCE, KEPT)
    await playing.settle()
    assert await used(playing) == [0, 0, 0, 0]


async def test_what_was_not_counted_is_charged_beyond_the_limit(
    playing: Playing, caplog: pytest.LogCaptureFixture
) -> None:
    """Then blocks are evicted until the limit holds."""
    caplog.set_level(logging.INFO, "tenantzone_manager")
    await playing.write(KEPT)
    chain = books.chain(spaces.owner_of(spaces.blocks_of(INSTANCE)), "FileSystem")
    await playing.manager.index.backend.commit(Commit(charges=[Charge(chain, used=-4 * SIZE)]))
    await playing.group(limit=4 * SIZE)
    assert await playing.manager.recount.recount() == 1
    assert await used(playing) == [6, 6, 6, 6]
    assert f"corrected the bytes of i/chat/FileSystem by +{4 * SIZE} used, +0 being deleted" in caplog.text
    await playing.settle()
    assert await used(playing) == [4, 4, 4, 4]


async def test_a_record_that_another_manager_dropped_is_recounted(
    redis_store: Callable[[], IndexBackend], tmp_path: Path
) -> None:
    """One manager recounts for all."""
    first = await Playing(redis_store(), tmp_path).start()
    other = await Playing(redis_store(), tmp_path).start(with_catalog=False)
    await first.write(BROKEN)
    await break_(first, BROKEN)
    await other.match(BROKEN)
    assert first.manager.index.corrupt == 0
    await first.manager.recount.recount_if_needed()
    assert await used(first) == [0, 0, 0, 0]
    await other.stop()
    await first.stop()


async def test_a_change_whose_answer_is_still_to_come_is_not_taken_for_a_wrong_account(
    redis_store: Callable[[], IndexBackend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records were looked at before it, and the accounts after it."""
    playing = await Playing(redis_store(), tmp_path).start()
    await playing.write(KEPT)
    backend = playing.manager.index.backend
    commit, accounts = backend.commit, backend.accounts
    may_answer, writing = asyncio.Event(), list[asyncio.Task[Any]]()

    async def commit_late(each: Commit) -> None:
        await commit(each)
        is_made.set()
        await may_answer.wait()

    is_made = asyncio.Event()

    async def accounts_after_a_write(names: list[str]) -> Any:
        if "s/disk" in names and not writing and playing.manager.recount._is_counting:
            monkeypatch.setattr(backend, "commit", commit_late)
            writing.append(asyncio.create_task(playing.write(prompt("new", 3))))
            await is_made.wait()
            monkeypatch.setattr(backend, "commit", commit)
        return await accounts(names)

    monkeypatch.setattr(backend, "accounts", accounts_after_a_write)
    await playing.manager.recount.recount()
    may_answer.set()
    await writing[0]
    await playing.audit()
    assert await used(playing) == [9, 9, 9, 9]
    await playing.stop()


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
    monkeypatch.setattr("tenantzone_manager.reclaims.recounting.READ_AT_ONCE", 2)
    return work


@pytest.mark.parametrize("at_once", [3, recounting.COUNTED_AT_ONCE])
async def test_what_changes_meanwhile_is_counted_once(
    written: Playing,
    changing: list[Callable[[], Awaitable[Any]]],
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before and behind the place that is looked at, in this instance and in another one, in one pass and in many."""
    monkeypatch.setattr(recounting, "COUNTED_AT_ONCE", at_once)
    await break_(written, KEPT[3:4])
    for names in (KEPT, BROKEN):
        await written.match(names)
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
    assert not await wrong_parents(written)


async def test_while_the_store_is_replaced_nothing_is_corrected(
    written: Playing, changing: list[Callable[[], Awaitable[Any]]]
) -> None:
    async def replace() -> None:
        written.manager.index.forget()

    await written.match(BROKEN)
    changing.append(replace)
    assert await written.manager.recount.recount() == 0
    assert await used(written) == [10, 16, 16, 16]
    assert await written.manager.recount.recount() > 0
    assert await used(written) == [6, 12, 12, 12]


async def test_all_changes_before_are_heard_of(
    redis_store: Callable[[], IndexBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_hear = asyncio.Event()
    may_hear.set()
    get_message = PubSub.get_message

    async def get_message_late(*arguments: Any, **options: Any) -> Any:
        message = await get_message(*arguments, **options)
        await may_hear.wait()
        return message

    monkeypatch.setattr(PubSub, "get_message", get_message_late)
    listening, other = redis_store(), redis_store()
    for backend in (listening, other):
        await backend.start(lambda *_: None)
    before = await listening.changes_heard()
    may_hear.clear()
    await other.commit(Commit([Change(Address(spaces.blocks_of(INSTANCE), b"key"), None, b"value")]))
    asking = asyncio.create_task(listening.changes_heard())
    assert not (await asyncio.wait([asking], timeout=0.2))[0]
    may_hear.set()
    assert await asking == before + 1
    for backend in (listening, other):
        await backend.close()


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
    playing = await Playing(store(), tmp_path).start()
    await playing.write(BROKEN)
    await break_(playing, BROKEN)
    await playing.match(BROKEN)
    await playing.stop()
    playing = await Playing(store(), tmp_path).start()
    await playing.manager.recount.recount_if_needed()
    assert await used(playing) == [0, 0, 0, 0]
    await playing.stop()

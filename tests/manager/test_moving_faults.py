"""Placement by heat while something fails: storages, the manager itself, what is changed or removed meanwhile."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tenantzone_manager.core.settings import Quota
from tenantzone_manager.index.backend import IndexBackend, IndexUnavailable
from tenantzone_manager.manager import Settings
from tenantzone_manager.moving.carrier import AT_ONCE
from tenantzone_manager.moving.ladders import RETRY_SECONDS
from tenantzone_manager.storages import data_storage_manager
from tenantzone_manager.storages.backend import StorageError
from tenantzone_manager.timing import Timing
from tests.manager.moving import BOTH, FAST, Killed, know_cold_storages, move, on, read, upper, where, write_below
from tests.manager.playing import INSTANCE, SIZE, Playing, files, path_of, prompt

A = prompt("a", 3)
UP = ["disk cold"] * 3
BELOW = ["cold"] * 3


@pytest.fixture
async def playing(
    store: Callable[[], IndexBackend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Playing]:
    know_cold_storages(monkeypatch)
    made = await Playing(store(), tmp_path).start()
    await made.storage("cold", "Cold")
    await write_below(made, A)
    yield made
    await made.audit()
    await made.stop()


@pytest.fixture
async def hot(playing: Playing) -> Playing:
    """What lies below is read often."""
    await read(playing, A, 9)
    return playing


async def nothing_is_left_of_it(playing: Playing, blocks: int = 3) -> None:
    """But what was there before."""
    await playing.settle()
    assert len(files(playing.root)) == blocks
    assert (await playing.account("g/team")).used == blocks * SIZE


@pytest.mark.usefixtures("hot")
async def test_a_storage_that_takes_nothing_is_left_alone_for_a_while(playing: Playing) -> None:
    folder = playing.root / "disk" / "objects"
    folder.write_text("no folder")
    moved = await move(playing)
    assert dict(moved.failed) == {"write": 3}
    assert await where(playing, A) == BELOW
    await read(playing, A, 1)
    assert not (await move(playing)).failed
    folder.unlink()
    await nothing_is_left_of_it(playing)
    await playing.manager.storages.probe("disk")
    await read(playing, A, 9)
    assert (await move(playing, after=RETRY_SECONDS)).blocks["up"] == 3
    assert await where(playing, A) == UP


@pytest.mark.usefixtures("hot")
async def test_a_block_that_can_not_be_read_keeps_no_other_from_moving(playing: Playing) -> None:
    (lost,) = (path for path in files(playing.root) if path.name.startswith(A[1].hex()))
    content = lost.read_bytes()
    lost.unlink()
    moved = await move(playing)
    assert (moved.blocks["up"], dict(moved.failed)) == (2, {"read": 1})
    lost.write_bytes(content)
    await read(playing, A, 1)
    assert not (await move(playing)).blocks, "it is not tried again at once"
    await read(playing, A, 1)
    await move(playing, after=RETRY_SECONDS)
    assert await where(playing, A) == UP


@pytest.mark.usefixtures("hot")
@pytest.mark.parametrize("content", [b"", b"short", b"x" * (SIZE + 1)])
async def test_what_has_another_size_than_was_written_is_not_copied(playing: Playing, content: bytes) -> None:
    (broken,) = (path for path in files(playing.root) if path.name.startswith(A[0].hex()))
    broken.write_bytes(content)
    assert dict((await move(playing)).failed) == {"read": 1}


@pytest.mark.usefixtures("hot")
async def test_a_copy_of_another_size_does_not_serve(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut_off() -> None:
        for path in (playing.root / "disk" / "objects").rglob("*.tp0"):
            path.write_bytes(b"short")

    on(playing, monkeypatch, "write", cut_off, after=True)
    assert dict((await move(playing)).failed) == {"size": 3}
    assert await where(playing, A) == BELOW
    await nothing_is_left_of_it(playing)


@pytest.mark.usefixtures("hot")
async def test_what_is_read_after_its_lease_is_not_believed(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot may be another block's by then."""

    async def takes_long() -> None:
        playing.clock.sleep(playing.manager.settings.timing.lease + 1)

    on(playing, monkeypatch, "read", takes_long)
    assert dict((await move(playing)).failed) == {"late": 3}
    assert await where(playing, A) == BELOW
    await nothing_is_left_of_it(playing)


@pytest.mark.usefixtures("hot")
@pytest.mark.parametrize(
    ("call", "reason", "timing"), [("read", "late", Timing(lease=0.05)), ("write", "write", Timing(60.0, write=0.05))]
)
async def test_a_storage_that_hangs_is_waited_for_no_longer_than_an_engine_would(
    store: Callable[[], IndexBackend],
    playing: Playing,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    reason: str,
    timing: Timing,
) -> None:
    await playing.stop()
    settings = Settings(timing, orphan_grace=0.0)
    playing.manager = Playing(store(), playing.root, playing.clock, settings).manager
    await playing.manager.start(in_background=False)
    await read(playing, A, 9)

    async def hang() -> None:
        await asyncio.Event().wait()

    on(playing, monkeypatch, call, hang)
    assert dict((await move(playing)).failed) == {reason: 3}
    assert await where(playing, A) == BELOW
    await nothing_is_left_of_it(playing)


@pytest.mark.usefixtures("hot")
@pytest.mark.parametrize("call", ["create", "exist"])
async def test_a_storage_that_does_not_answer_ends_no_pass(
    playing: Playing, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with monkeypatch.context() as hanging:
        hanging.setattr(data_storage_manager, "ANSWER_SECONDS", 0.05)
        hanging.setattr(playing.manager.storages.backend("disk"), call, lambda _: asyncio.Event().wait())
        assert dict((await move(playing)).failed) == {"write": 3}
    assert await where(playing, A) == BELOW
    await nothing_is_left_of_it(playing)


@pytest.mark.usefixtures("hot")
async def test_what_is_removed_meanwhile_stays_removed(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def remove() -> None:
        await playing.manager.remover.remove_cache(INSTANCE, A)

    on(playing, monkeypatch, "write", remove)
    assert dict((await move(playing)).failed) == {"gone": 3}
    assert await where(playing, A) == [""] * 3
    await nothing_is_left_of_it(playing, blocks=0)


@pytest.mark.usefixtures("hot")
async def test_what_is_trimmed_where_it_lies_does_not_come_to_serve_elsewhere(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trim() -> None:
        await playing.manager.remover.trim_cache(INSTANCE, "Cold")

    on(playing, monkeypatch, "write", trim)
    assert dict((await move(playing)).failed) == {"gone": 1}
    assert (await where(playing, A))[2] == "", "the others have a copy that comes to serve after them"
    for storage_type in ("FileSystem", "Cold"):
        await playing.manager.remover.trim_cache(INSTANCE, storage_type)
    await nothing_is_left_of_it(playing, blocks=0)


async def test_a_storage_that_is_disabled_meanwhile_is_not_relied_on(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await playing.group(BOTH, types=upper(6), moves=FAST)
    await playing.write(prompt("b", 4))

    async def disable() -> None:
        await playing.storage("cold", "Cold", enabled=False)

    on(playing, monkeypatch, "write", disable, after=True)
    await move(playing)
    assert await where(playing, prompt("b", 4)) == ["disk"] * 4


async def test_a_storage_that_is_disabled_meanwhile_is_written_no_more(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_below(playing, prompt("long", 4 * AT_ONCE))
    await read(playing, prompt("long", 4 * AT_ONCE), 9)

    async def disable() -> None:
        await playing.storage("disk", enabled=False)

    on(playing, monkeypatch, "write", disable)
    moved = await move(playing)
    assert moved.blocks["up"] <= AT_ONCE, "no more than was under way"


@pytest.mark.usefixtures("hot")
async def test_nothing_makes_room_in_a_storage_that_takes_nothing(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await playing.group(BOTH, types=upper(5, 0.8), moves=FAST)
    await playing.write(prompt("idle", 3))

    async def fail() -> None:
        raise StorageError("it is full")

    on(playing, monkeypatch, "write", fail)
    moved = await move(playing)
    assert dict(moved.failed) == {"write": 1}
    assert await where(playing, prompt("idle", 3)) == ["disk"] * 3


@pytest.mark.usefixtures("hot")
async def test_a_storage_that_is_disabled_takes_nothing(playing: Playing) -> None:
    await playing.storage("disk", enabled=False)
    assert not (await move(playing)).blocks
    await playing.storage("disk", enabled=True)
    await read(playing, A, 1)
    assert (await move(playing)).blocks["up"] == 3


@pytest.mark.usefixtures("hot")
async def test_a_quota_that_is_lowered_meanwhile_is_kept_as_soon_as_may_be(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lower() -> None:
        await playing.group(BOTH, types={"FileSystem": Quota(2 * SIZE, 1.0)}, moves=FAST)

    on(playing, monkeypatch, "write", lower)
    await move(playing)
    assert await where(playing, A) == UP
    await playing.settle()
    assert (await playing.account("g/team/FileSystem")).used == 2 * SIZE
    assert await playing.hits(A) == 3


PHASES = ("create", "read", "write", "exist")


@pytest.mark.usefixtures("hot")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", PHASES)
async def test_a_manager_that_is_killed_while_it_copies_leaks_nothing(
    playing: Playing,
    store: Callable[[], IndexBackend],
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    after: bool,
) -> None:
    async def kill() -> None:
        raise Killed

    on(playing, monkeypatch, call, kill, after=after)
    with pytest.raises(Killed):
        await move(playing)
    used = (await playing.account("g/team")).used
    assert used == 6 * SIZE, "what is being copied is used"
    await playing.stop()
    playing.manager = (await Playing(store(), playing.root, playing.clock).start(with_catalog=False)).manager
    assert await where(playing, A) == BELOW
    await playing.audit()
    await nothing_is_left_of_it(playing)
    await read(playing, A, 9)
    assert (await move(playing)).blocks["up"] == 3


@pytest.mark.usefixtures("hot")
@pytest.mark.parametrize("is_made", [False, True])
async def test_an_index_that_fails_at_the_end_of_a_copy_leaks_nothing(
    playing: Playing, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    index = playing.manager.index
    real = index.read_modify_write

    async def fail(*arguments: object, **more: object) -> None:
        if is_made:
            await real(*arguments, **more)  # type: ignore[arg-type]
        raise IndexUnavailable("it does not answer")

    async def break_it() -> None:
        monkeypatch.setattr(index, "read_modify_write", fail)

    on(playing, monkeypatch, "exist", break_it, after=True)
    with pytest.raises(IndexUnavailable):
        await move(playing)
    monkeypatch.undo()
    know_cold_storages(monkeypatch)
    assert await where(playing, A) == (UP if is_made else BELOW)
    await nothing_is_left_of_it(playing, blocks=6 if is_made else 3)


async def test_what_was_copied_down_before_the_manager_died_leaves_when_another_one_leads(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await playing.group(BOTH, types=upper(6), moves=FAST)
    await playing.write(prompt("b", 4))

    async def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(playing.manager.mover._descent._carrier, "let_go", kill)
    with pytest.raises(Killed):
        await move(playing)
    assert await where(playing, prompt("b", 4)) == ["disk"] * 3 + ["disk cold"]
    monkeypatch.undo()
    know_cold_storages(monkeypatch)
    moved = await move(playing)
    assert (moved.blocks["down"], moved.bytes["down"]) == (1, 0)
    assert await where(playing, prompt("b", 4)) == ["disk"] * 3 + ["cold"]


@pytest.mark.usefixtures("hot")
async def test_what_a_dead_manager_has_written_without_a_record_is_an_orphan(playing: Playing) -> None:
    await move(playing)
    copied = files(playing.root)[0]
    orphan = copied.with_name(copied.name.replace(".tp0", "-ff00ff00.tp0"))
    orphan.write_bytes(b"late")
    playing.clock.now = 1e12
    assert await playing.manager.orphans.scan() == 1
    assert await where(playing, A) == UP


@pytest.mark.usefixtures("hot")
async def test_a_pipe_in_place_of_a_part_holds_up_no_other_call(playing: Playing) -> None:
    match = await playing.match(A)
    path, _, _ = path_of(match.blocks[0].locations[0])
    path.unlink()
    os.mkfifo(path)
    assert dict((await move(playing)).failed) == {"read": 1}

"""Prompts of models with several groups of KV caches: how they are written, how far they are found, what goes first."""

import asyncio
import random
from typing import Any

import pytest

from tenantzone_manager import spaces
from tenantzone_manager.core.heat import heat_at
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.core.writing import WriteStatus
from tenantzone_manager.reads.hits import KeyGroup
from tenantzone_manager.storages.backend import Place, StorageError
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tests.manager.playing import SIZE, Playing, files, prompt, read_bytes

INSTANCE = Instance("groups", "team", 16, (Spec("chunk", SIZE),))
SHAPES = (HitShape(16, (None, 3)), HitShape(16, (2, None, 4)), HitShape(16, (None, 1, None)), HitShape(16, (None, 40)))


def suffix(group: int) -> bytes:
    return b"-g%d" % group


def groups_of(shape: HitShape) -> list[KeyGroup]:
    return [KeyGroup(suffix(group), window or 0) for group, window in enumerate(shape.windows)]


def by_group(shape: HitShape, names: list[bytes]) -> list[list[bytes]]:
    return [[name + suffix(group) for name in names] for group in range(len(shape.windows))]


def needed(shape: HitShape, names: list[bytes], length: int) -> list[bytes]:
    """The blocks that a prefix of `length` blocks needs, group by group."""
    windows = zip(shape.windows, by_group(shape, names), strict=True)
    return [key for window, keys in windows for key in keys[max(0, length - window) if window else 0 : length]]


@pytest.fixture
async def groups(playing: Playing) -> Playing:
    await playing.manager.catalog.register_instance(INSTANCE)
    return playing


async def write(playing: Playing, shape: HitShape, names: list[bytes], **more: object) -> list[WriteStatus]:
    """Write what an engine does of a prompt."""
    end = len(names) * shape.chunk_tokens
    hit = shape.keys(by_group(shape, names), end)
    return (await playing.write(hit, INSTANCE, parents=shape.parents(end), **more)).statuses


async def found(playing: Playing, shape: HitShape, names: list[bytes]) -> int:
    """How many blocks of a prompt are found, after a look at what lies where they are said to be."""
    match = await playing.manager.reader.get_hit(INSTANCE, names, groups_of(shape))
    for name, block in zip(needed(shape, names, match.hit), match.blocks, strict=True):
        assert read_bytes(block.locations[0]) == name
    return match.hit


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape.windows))
async def test_a_prompt_is_found_where_it_ended(groups: Playing, shape: HitShape) -> None:
    names = prompt("p", 10)
    assert await write(groups, shape, names) == [WriteStatus.WRITE] * shape.chunks(160)
    assert await found(groups, shape, names) == 10
    assert await found(groups, shape, [*names, *prompt("more", 5)]) == 10


@pytest.mark.parametrize("number", range(12))
async def test_as_much_is_found_as_each_group_has(groups: Playing, number: int) -> None:
    """Against what engines look for in their own tiers."""
    chance = random.Random(number)
    shape = chance.choice(SHAPES)
    stem = prompt("p", 24)
    prompts = [stem[: chance.randint(1, 24)] + prompt(f"q{turn}", chance.choice([0, 3])) for turn in range(5)]
    for names in prompts:
        await write(groups, shape, names)
    there = {key for names in prompts for key in needed(shape, names, len(names))}
    for _ in range(6):
        for names in [*prompts, stem]:
            wanted = shape.longest(by_group(shape, names), 0, len(names) * 16, there.__contains__) // 16
            assert await found(groups, shape, names) == wanted
        gone = set(chance.sample(sorted(there), min(4, len(there))))
        await groups.manager.remover.remove_cache(INSTANCE, sorted(gone))
        there -= gone


async def test_the_windows_of_an_older_end_go_before_all_else(groups: Playing) -> None:
    shape = HitShape(16, (None, 2))
    first, longer = prompt("p", 6), prompt("p", 10)
    await write(groups, shape, first)
    groups.clock.sleep(60)
    await write(groups, shape, longer)
    assert await found(groups, shape, longer) == 10
    await groups.manager.touches.flush()
    removed = await groups.manager.remover.trim_cache(INSTANCE, "FileSystem", to_bytes=SIZE * shape.chunks(160))
    assert removed.blocks == 2
    assert await found(groups, shape, longer) == 10
    assert await found(groups, shape, first) == 0


async def test_what_a_longer_prompt_has_in_common_with_an_older_end_goes_after_it(groups: Playing) -> None:
    """Each goes on by a block, as conversations do, so that most of its window is older than its end."""
    shape = HitShape(16, (None, 4))
    # Among blocks of the same age, those with the last keys go first.
    names = [b"%04d" % (9999 - index) for index in range(9)]
    for length in range(6, 10):
        await write(groups, shape, names[:length], whole=True)
        groups.clock.sleep(60)
    for gone in range(4):
        assert [await found(groups, shape, names[:length]) for length in range(6, 10)] == [
            0 if length < 6 + gone else length for length in range(6, 10)
        ]
        await groups.manager.remover.trim_cache(INSTANCE, "FileSystem", at_most=SIZE)


async def test_a_read_counts_once_for_what_a_prompt_begins_with_when_its_windows_have_gone(groups: Playing) -> None:
    shape = HitShape(16, (None, 4, 2))
    names = prompt("p", 8)
    await write(groups, shape, names)
    assert await found(groups, shape, names) == 8
    await groups.manager.touches.flush()
    for left in (8, 3):
        await groups.manager.remover.trim_cache(INSTANCE, "FileSystem", to_bytes=left * SIZE)
        (end,) = await groups.manager.index.get(spaces.blocks_of(INSTANCE), [names[left - 1] + suffix(0)])
        assert end is not None
        assert (end.value.hits, heat_at(end.value, groups.clock())) == (1, 1)
        assert end.value.used_at == groups.clock()


async def test_others_have_their_turns_while_windows_are_looked_for(groups: Playing) -> None:
    """An index in a file never lets other tasks run in between, and a long prompt may have no window there."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    names = prompt("p", 4000)
    await groups.write(names, INSTANCE)
    others = asyncio.create_task(other())
    match = await groups.manager.reader.get_hit(INSTANCE, names, [KeyGroup(b""), KeyGroup(b"-window", 1)])
    others.cancel()
    assert (match.hit, match.blocks) == (0, [])
    assert turns >= 200


async def test_what_is_of_use_whole_is_written_whole_or_not_at_all(groups: Playing) -> None:
    shape = HitShape(16, (None, 2))
    await groups.group(limit=8 * SIZE)
    assert await write(groups, shape, prompt("long", 7), whole=True) == [WriteStatus.NO_ROOM] * 9
    assert (await groups.account("g/team")).used == 0
    assert await write(groups, shape, prompt("fits", 6), whole=True) == [WriteStatus.WRITE] * 8


async def test_nothing_is_left_of_a_whole_if_a_storage_did_not_take_its_part(
    groups: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = HitShape(16, (None, 2))
    await groups.storage("small", limit=5 * SIZE)
    await groups.group(["small", "disk"])
    create = groups.manager.storages.create

    async def fails_on_the_disk(name: str, places: list[Place]) -> None:
        if name == "disk":
            raise StorageError("it is full")
        await create(name, places)

    monkeypatch.setattr(groups.manager.storages, "create", fails_on_the_disk)
    end, names = 96, prompt("p", 6)
    hit = shape.keys(by_group(shape, names), end)
    started = await groups.start_write(hit, INSTANCE, parents=shape.parents(end), whole=True)
    assert (started.write_id, started.locations) == ("", {})
    assert started.statuses == [WriteStatus.NO_ROOM] * 8
    await groups.settle()
    assert (await groups.account("g/team")).used == 0
    assert not files(groups.root)
    # One that may be written in part is, as before.
    assert len((await groups.start_write(hit, INSTANCE, parents=shape.parents(end))).locations) == 5


async def test_nothing_is_begun_of_a_whole_whose_beginning_goes_meanwhile(
    groups: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = HitShape(16, (None, 5))
    names = prompt("p", 6)
    await write(groups, shape, names[:3])
    await groups.manager.remover.remove_cache(INSTANCE, [names[1] + suffix(1)])
    reserver = groups.manager.writer._reserver
    plan = reserver._plan

    async def while_it_is_planned(*arguments: Any) -> Any:
        made = await plan(*arguments)
        await groups.manager.remover.remove_cache(INSTANCE, [names[2] + suffix(0)])
        return made

    monkeypatch.setattr(reserver, "_plan", while_it_is_planned)
    assert WriteStatus.WRITE not in await write(groups, shape, names, whole=True)
    await groups.settle()
    assert (await groups.account("g/team")).used == 4 * SIZE


async def test_nothing_is_written_whole_that_lacks_its_beginning(groups: Playing) -> None:
    shape = HitShape(16, (None, 2))
    assert await write(groups, shape, prompt("p", 4), whole=True, first=2) == [WriteStatus.NO_PREFIX] * 6


@pytest.mark.parametrize("parents", [[-1, 0, 1, 1, 0], [0, 0], [-1, 2, 1], [-2, 0, 1], [-1]], ids=str)
async def test_blocks_follow_such_as_are_named_before_them(groups: Playing, parents: list[int]) -> None:
    with pytest.raises(ValueError, match=r"parents do not fit 3 blocks|block . can.t follow block"):
        await groups.start_write(prompt("p", 3), INSTANCE, parents=parents)

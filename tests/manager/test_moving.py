"""Placement by heat: what is read often goes up, what is cold goes down; over SQLite and over Redis."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tenantzone_manager.core.settings import Instance, InstanceQuota, Moves, Quota, Spec
from tenantzone_manager.index.backend import IndexBackend
from tenantzone_manager.moving.copier import LARGEST_PART
from tests.manager.moving import BOTH, FAST, know_cold_storages, move, read, upper, where, write_below
from tests.manager.playing import INSTANCE, SIZE, Playing, eventually, files, keys, path_of, prompt, read_bytes

OTHER = Instance("other", "team", 16, (Spec("tp0", SIZE),))


@pytest.fixture
async def playing(
    store: Callable[[], IndexBackend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Playing]:
    know_cold_storages(monkeypatch)
    made = await Playing(store(), tmp_path).start()
    await made.storage("cold", "Cold")
    yield made
    await made.audit()
    await made.stop()


async def test_what_is_read_often_gets_a_further_location_above(playing: Playing) -> None:
    await write_below(playing, prompt("a", 3))
    await read(playing, prompt("a", 3), 2)
    assert not (await move(playing)).blocks, "it was not read often"
    await read(playing, prompt("a", 3), 1)
    moved = await move(playing)
    assert (moved.blocks["up"], moved.bytes["up"]) == (3, 3 * SIZE)
    assert await where(playing, prompt("a", 3)) == ["disk cold"] * 3
    assert (await playing.account("g/team/FileSystem")).used == 3 * SIZE
    assert (await playing.account("g/team/Cold")).used == 3 * SIZE
    assert not (await move(playing)).blocks, "it is there already"


async def test_reads_count_less_with_time(playing: Playing) -> None:
    await write_below(playing, keys("a"))
    for _ in range(6):
        await read(playing, keys("a"), 1)
        assert not (await move(playing, after=600)).blocks


async def test_the_blocks_before_a_hot_one_are_hot_and_those_after_it_are_not(playing: Playing) -> None:
    await write_below(playing, prompt("a", 5))
    await read(playing, prompt("a", 3), 3)
    await move(playing)
    assert await where(playing, prompt("a", 5)) == ["disk cold"] * 3 + ["cold"] * 2


async def test_of_a_sliding_window_only_what_queries_end_at_is_hot(playing: Playing) -> None:
    sliding = Instance("sliding", "team", 16, (Spec("tp0", SIZE),), needs_prefix=False)
    await playing.manager.catalog.register_instance(sliding)
    await playing.group(["cold"])
    await playing.write(prompt("a", 5), sliding)
    await playing.group(BOTH, moves=FAST)
    for _ in range(3):
        await playing.match(prompt("a", 5), sliding, query="window", window=2)
    await move(playing)
    assert await where(playing, prompt("a", 5), sliding) == ["cold"] * 4 + ["disk cold"]


async def test_what_is_above_the_watermark_moves_down_and_is_not_evicted(playing: Playing) -> None:
    await playing.group(BOTH, types=upper(10), moves=FAST)
    await playing.write(prompt("a", 7))
    await playing.reclaim()
    assert await where(playing, prompt("a", 7)) == ["disk"] * 7
    moved = await move(playing)
    assert (moved.blocks["down"], moved.bytes["down"]) == (2, 2 * SIZE)
    await playing.settle()
    assert await where(playing, prompt("a", 7)) == ["disk"] * 5 + ["cold"] * 2
    assert (await playing.account("g/team/FileSystem")).used == 5 * SIZE
    assert len(files(playing.root)) == 7


async def test_the_coldest_go_first(playing: Playing) -> None:
    await playing.group(BOTH, types=upper(20), moves=FAST)
    for name in "abc":
        await playing.write([*keys("root"), *prompt(name, 4)])
        playing.clock.sleep(10)
    await read(playing, [*keys("root"), *prompt("a", 4)], 1)
    playing.clock.sleep(10)
    await move(playing)
    # Ten of thirteen may stay: of the prompt that was used least lately the end goes.
    assert await where(playing, [*keys("root"), *prompt("a", 4)]) == ["disk"] * 5
    assert await where(playing, prompt("b", 4)) == ["disk"] + ["cold"] * 3
    assert await where(playing, prompt("c", 4)) == ["disk"] * 4


async def test_what_many_prompts_begin_with_goes_down_after_all_of_them(playing: Playing) -> None:
    await playing.group(BOTH, types=upper(20, 0.05), moves=FAST)
    for name in "abc":
        await playing.write([*prompt("system", 2), *prompt(name, 3)])
    moved = await move(playing)
    assert moved.blocks["down"] == 10
    assert await where(playing, prompt("system", 2)) == ["disk", "cold"]


async def test_a_prompt_s_beginning_moves_down_after_its_end_did(playing: Playing) -> None:
    """Also if the end was written there, as the higher type was full."""
    await playing.group(BOTH, types={"FileSystem": Quota(4 * SIZE)}, moves=FAST)
    await playing.write(prompt("a", 6))
    assert await where(playing, prompt("a", 6)) == ["disk"] * 4 + ["cold"] * 2
    await playing.group(BOTH, types=upper(4), moves=FAST)
    await move(playing)
    assert await where(playing, prompt("a", 6)) == ["disk"] * 2 + ["cold"] * 4


async def test_where_nothing_has_room_below_it_is_evicted(playing: Playing) -> None:
    await playing.storage("cold", "Cold", limit=SIZE)
    await playing.group(BOTH, types=upper(10), moves=FAST)
    await playing.write(prompt("a", 7))
    for _ in range(3):
        await move(playing)
        await playing.settle()
    there = await where(playing, prompt("a", 7))
    assert there.count("disk") == 5
    assert "" not in there[:5], "and no hole is left"


@pytest.mark.parametrize("of_storage", [False, True])
async def test_a_full_lower_type_without_a_watermark_makes_room_for_what_is_held_up(
    playing: Playing, of_storage: bool
) -> None:
    """Prompts lie in both. What is coldest goes below; else what is newest would go, as nothing comes after it."""
    await playing.storage("cold", "Cold", limit=6 * SIZE)
    if of_storage:
        await playing.storage("disk", limit=4 * SIZE, watermark=0.5)
    await playing.group(BOTH, types={} if of_storage else upper(4), moves=FAST)
    for name in "abcdefgh":
        await playing.write(prompt(name, 3))
        for _ in range(3):
            await move(playing)
            await playing.reclaim(after=60)
    assert await playing.hits(prompt("h", 3)) == 3
    assert await playing.hits(prompt("a", 3)) == 0
    assert (await playing.account("s/disk")).used == 2 * SIZE
    assert (await playing.account("s/cold")).used >= 4 * SIZE, "no more than needed has gone"


async def test_floors_above_a_watermark_cost_nothing_below(playing: Playing) -> None:
    own = {"chat": {"FileSystem": InstanceQuota(reserved=4 * SIZE)}}
    await playing.group(["cold"])
    await playing.write(prompt("below", 3))
    await playing.storage("cold", "Cold", limit=3 * SIZE)
    await playing.group(BOTH, types=upper(4), instances=own, moves=FAST)
    await playing.write(prompt("above", 4))
    for _ in range(3):
        await move(playing)
        await playing.reclaim(after=60)
    assert await where(playing, prompt("below", 3)) == ["cold"] * 3
    assert await where(playing, prompt("above", 4)) == ["disk"] * 4


async def test_what_comes_faster_than_it_moves_is_evicted_before_the_limit(playing: Playing) -> None:
    await playing.group(BOTH, types=upper(12), moves=Moves(1))
    await playing.write(prompt("a", 12))
    await playing.reclaim()
    # Half of what lies between the watermark and the limit is left for the mover.
    assert await where(playing, prompt("a", 12)) == ["disk"] * 9 + [""] * 3


async def test_a_storage_above_its_own_watermark_is_relieved_too(playing: Playing) -> None:
    await playing.storage("disk", limit=10 * SIZE, watermark=0.5)
    await playing.group(BOTH, moves=FAST)
    await playing.write(prompt("a", 7))
    await playing.reclaim()
    await move(playing)
    await playing.settle()
    assert await where(playing, prompt("a", 7)) == ["disk"] * 5 + ["cold"] * 2


async def test_what_lies_below_already_leaves_without_a_copy(playing: Playing) -> None:
    await write_below(playing, prompt("a", 6))
    await read(playing, prompt("a", 6), 3)
    await move(playing)
    await playing.group(BOTH, types=upper(8), moves=FAST)
    moved = await move(playing)
    assert (moved.blocks["down"], moved.bytes["down"]) == (2, 0)
    assert await where(playing, prompt("a", 6)) == ["disk cold"] * 4 + ["cold"] * 2


async def test_unpromised_blocks_move_and_a_floor_does_not(playing: Playing) -> None:
    await playing.manager.catalog.register_instance(OTHER)
    own = {"chat": {"FileSystem": InstanceQuota(reserved=4 * SIZE)}}
    await playing.group(BOTH, types=upper(10), instances=own, moves=FAST)
    await playing.write(prompt("mine", 4))
    playing.clock.sleep(100)
    await playing.write(prompt("flood", 3), OTHER)
    await move(playing)
    assert await where(playing, prompt("mine", 4)) == ["disk"] * 4
    assert await where(playing, prompt("flood", 3), OTHER) == ["disk", "cold", "cold"]


async def test_nothing_goes_up_into_what_another_is_promised(playing: Playing) -> None:
    await playing.manager.catalog.register_instance(OTHER)
    own = {"other": {"FileSystem": InstanceQuota(reserved=4 * SIZE)}}
    types = {"FileSystem": Quota(6 * SIZE)}
    await write_below(playing, prompt("a", 5), types=types, instances=own)
    await read(playing, prompt("a", 5), 3)
    await move(playing)
    assert await where(playing, prompt("a", 5)) == ["disk cold"] * 2 + ["cold"] * 3


async def test_a_rate_is_kept(playing: Playing) -> None:
    await write_below(playing, prompt("a", 7), moves=Moves(2 * SIZE))
    await read(playing, prompt("a", 7), 4)
    counts = [(await move(playing, after=seconds)).blocks["up"] for seconds in (1, 0, 1, 0.5, 0.5, 100)]
    assert counts == [2, 0, 2, 1, 1, 1]
    assert await where(playing, prompt("a", 7)) == ["disk cold"] * 7


async def test_a_block_that_is_larger_than_the_rate_moves_in_its_time(playing: Playing) -> None:
    await write_below(playing, prompt("a", 2), moves=Moves(SIZE // 4))
    await read(playing, prompt("a", 2), 4)
    counts = [(await move(playing, after=seconds)).blocks["up"] for seconds in (1, 1, 1, 1, 1)]
    assert counts == [1, 0, 0, 0, 1]


async def test_what_is_much_colder_makes_room_for_what_is_hot(playing: Playing) -> None:
    await write_below(playing, prompt("hot", 2), types=upper(10, 0.4))
    await playing.write(prompt("idle", 4))
    await read(playing, prompt("hot", 2), 4)
    moved = await move(playing)
    assert (moved.blocks["up"], moved.blocks["down"]) == (2, 2)
    assert await where(playing, prompt("hot", 2)) == ["disk cold"] * 2
    assert await where(playing, prompt("idle", 4)) == ["disk", "disk", "cold", "cold"]
    await playing.settle()
    assert await where(playing, prompt("idle", 4)) == ["disk", "disk", "cold", "cold"], "nothing is evicted for it"


async def test_no_more_makes_room_than_is_needed(playing: Playing) -> None:
    """Where both the type and the storage have a watermark, what leaves one leaves the other."""
    await playing.storage("disk", limit=10 * SIZE, watermark=0.4)
    await write_below(playing, prompt("hot", 2), types=upper(10, 0.4))
    await playing.write(prompt("idle", 4))
    await read(playing, prompt("hot", 2), 4)
    moved = await move(playing)
    assert (moved.blocks["up"], moved.blocks["down"]) == (2, 2)


async def test_what_is_about_as_hot_makes_no_room(playing: Playing) -> None:
    await write_below(playing, prompt("hot", 2), types=upper(10, 0.4))
    await playing.write(prompt("warm", 4))
    await read(playing, prompt("warm", 4), 3)
    await read(playing, prompt("hot", 2), 4)
    assert not (await move(playing)).blocks
    assert await where(playing, prompt("warm", 4)) == ["disk"] * 4


async def test_a_total_that_is_full_loses_nothing_for_a_further_location(playing: Playing) -> None:
    await write_below(playing, prompt("a", 5), limit=10 * SIZE, watermark=0.5)
    await read(playing, prompt("a", 5), 3)
    moved = await move(playing)
    assert moved.blocks["up"] == 5
    assert await where(playing, prompt("a", 5)) == ["disk"] * 5
    await playing.settle()
    assert (await playing.account("g/team")).used == 5 * SIZE
    assert await playing.hits(prompt("a", 5)) == 5


@pytest.mark.parametrize("limit", ["total", "type", "storage", "instance"])
async def test_no_quota_is_passed(playing: Playing, limit: str) -> None:
    """Not even while a block lies in both."""
    terms = {
        "total": {"limit": 4 * SIZE},
        "type": {"types": {"FileSystem": Quota(SIZE)}},
        "instance": {"instances": {"chat": {"FileSystem": InstanceQuota(limit=SIZE)}}},
    }
    await write_below(playing, prompt("a", 3), **terms.get(limit, {}))
    if limit == "storage":
        await playing.storage("disk", limit=SIZE)
    await read(playing, prompt("a", 3), 3)
    moved = await move(playing)
    assert moved.blocks["up"] == 1
    assert not moved.failed
    assert await where(playing, prompt("a", 3)) == ["disk cold", "cold", "cold"]


async def test_what_was_given_out_can_be_read_until_its_lease_is_over(playing: Playing) -> None:
    await playing.group(BOTH, types=upper(2), moves=FAST)
    await playing.write(keys("a", "b"))
    given = (await playing.match(keys("a", "b"))).blocks[1].locations[0]
    await move(playing)
    assert await where(playing, keys("a", "b")) == ["disk", "cold"]
    await playing.reclaim(after=playing.manager.settings.timing.lease - 1)
    assert read_bytes(given) == b"b"
    await playing.reclaim(after=60)
    assert not path_of(given)[0].exists()
    assert (await playing.account("s/disk")).used == SIZE


async def test_it_begins_and_ends_when_the_group_says_so(playing: Playing) -> None:
    await write_below(playing, prompt("a", 3), moves=None)
    await read(playing, prompt("a", 3), 5)
    assert not (await move(playing)).blocks
    await playing.group(BOTH, types=upper(8), moves=FAST)
    await read(playing, prompt("a", 3), 1)
    assert (await move(playing)).blocks["up"] == 3, "reads of before count"
    await playing.group(BOTH, types=upper(8, 1 / 8))
    assert not (await move(playing)).blocks
    assert await where(playing, prompt("a", 3)) == ["disk cold"] * 3
    await playing.settle()
    assert await where(playing, prompt("a", 3)) == ["disk cold", "cold", "cold"], "it is evicted as before"
    assert await playing.hits(prompt("a", 3)) == 3


async def test_what_moved_up_and_down_is_removed_without_a_trace(playing: Playing) -> None:
    await write_below(playing, prompt("a", 4), types=upper(8))
    await read(playing, prompt("a", 4), 3)
    await move(playing)
    await playing.group(BOTH, types=upper(8, 0.2), moves=FAST)
    await move(playing)
    await playing.manager.remover.remove_cache(INSTANCE, prompt("a", 4))
    await playing.settle()
    assert await playing.manager.index.count("blocks/team/chat") == 0
    assert not files(playing.root)
    assert (await playing.account("g/team")).used == 0


async def test_between_large_files_too_and_no_slot_is_lost(playing: Playing) -> None:
    for name, kind in (("many", "FileSystem"), ("deep", "Cold")):
        await playing.storage(name, kind, more={"slots_per_file": 3})
    await playing.group(["deep"])
    await playing.write(prompt("a", 5))
    await playing.group(["many", "deep"], moves=FAST)
    await read(playing, prompt("a", 5), 3)
    await move(playing)
    assert await where(playing, prompt("a", 5)) == ["many deep"] * 5
    await playing.manager.remover.remove_cache(INSTANCE, prompt("a", 5))
    await playing.settle()
    for name in ("many", "deep"):
        found, _ = await playing.manager.index.scan(f"slots/team/{name}", b"", 100)
        assert sum(file.free for _, file in found) == 6


async def test_a_block_of_several_parts_moves_as_a_whole(playing: Playing) -> None:
    ranks = Instance("tp2", "team", 16, (Spec("tp0", SIZE), Spec("tp1", 100)))
    await playing.manager.catalog.register_instance(ranks)
    await playing.group(["cold"])
    await playing.write(keys("a"), ranks)
    await playing.group(BOTH, moves=FAST)
    await read(playing, keys("a"), 3, ranks)
    assert (await move(playing)).bytes["up"] == SIZE + 100
    above, below = (await playing.match(keys("a"), ranks)).blocks[0].locations
    assert [spec.name for spec in above.specs] == [spec.name for spec in below.specs] == ["tp0", "tp1"]
    assert [path_of(above, part)[0].read_bytes() for part in (0, 1)] == [
        path_of(below, part)[0].read_bytes() for part in (0, 1)
    ]


async def test_what_is_too_large_for_memory_stays(playing: Playing) -> None:
    huge = Instance("huge", "team", 16, (Spec("tp0", LARGEST_PART + 1),))
    await playing.manager.catalog.register_instance(huge)
    await playing.group(["cold"])
    started = await playing.start_write(keys("a"), huge)
    path, _, size = path_of(started.locations[0])
    with path.open("wb") as file:
        file.truncate(size)
    await playing.manager.writer.finish_write_cache(huge, started.write_id, keys("a"), [])
    await playing.group(BOTH, moves=FAST)
    for _ in range(3):
        await playing.match(keys("a"), huge)
    assert not (await move(playing)).blocks


async def test_reads_that_other_managers_answer_count(redis_store: Callable[[], IndexBackend], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    know_cold_storages(monkeypatch)
    leader = await Playing(redis_store(), tmp_path).start()
    await leader.storage("cold", "Cold")
    await write_below(leader, prompt("a", 2))
    other = await Playing(redis_store(), tmp_path, leader.clock).start(with_catalog=False)
    try:
        await read(other, prompt("a", 2), 3)
        await other.manager.touches.flush()

        async def goes_up() -> bool:
            await move(leader, after=0)
            return await where(leader, prompt("a", 2)) == ["disk cold"] * 2

        await eventually(goes_up, True)
    finally:
        for each in (other, leader):
            await each.stop()

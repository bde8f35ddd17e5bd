"""What engines see of a manager: matching, two-phase writes, removal; over SQLite and over Redis."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tenantzone_manager.core.heat import HALF_LIFE_SECONDS
from tenantzone_manager.core.records import State
from tenantzone_manager.core.settings import Instance, InstanceQuota, Quota, Spec
from tenantzone_manager.core.writing import Ending, WriteStatus
from tenantzone_manager.index.backend import IndexBackend, IndexUnavailable
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.server.hashing import block_keys
from tenantzone_manager.storages import data_storage_manager
from tenantzone_manager.turns import WRITE_AT_ONCE
from tests.manager.playing import INSTANCE, SIZE, Playing, files, keys, path_of, prompt, write_bytes

WRITE, SERVING, WRITING = WriteStatus.WRITE, WriteStatus.SERVING, WriteStatus.WRITING
NO_ROOM, NO_PREFIX = WriteStatus.NO_ROOM, WriteStatus.NO_PREFIX


async def test_what_was_written_is_found_by_its_prefix(playing: Playing) -> None:
    abc = keys("a", "b", "c")
    started = await playing.write(abc)
    assert started.statuses == [WRITE] * 3
    assert await playing.hits(keys("a", "b", "c", "d")) == 3
    assert await playing.hits(keys("a", "x", "c")) == 1
    assert await playing.hits(keys("x", "b")) == 0


async def test_what_is_being_written_is_not_served(playing: Playing) -> None:
    started = await playing.start_write(keys("a", "b"))
    assert await playing.hits(keys("a", "b")) == 0
    for index, location in started.locations.items():
        write_bytes(location, keys("a", "b")[index])
    endings = await playing.manager.writer.finish_write_cache(INSTANCE, started.write_id, keys("a"), keys("b"))
    assert endings == [Ending.SERVING, Ending.FAILED]
    assert await playing.hits(keys("a", "b")) == 1


async def test_a_block_has_one_writer(playing: Playing) -> None:
    await playing.write(keys("a"))
    first = await playing.start_write(keys("a", "b"))
    second = await playing.start_write(keys("a", "b", "c"))
    assert first.statuses == [SERVING, WRITE]
    assert second.statuses == [SERVING, WRITING, WRITE]
    assert await playing.finish(keys("a", "b"), first) == [Ending.SERVING]
    assert await playing.finish(keys("a", "b", "c"), second) == [Ending.SERVING]
    assert await playing.hits(keys("a", "b", "c")) == 3


async def test_a_writer_that_dies_gives_its_place_and_its_bytes_back(playing: Playing) -> None:
    dead = await playing.start_write(keys("a", "b"), write_seconds=30)
    assert (await playing.account("g/team")).used == 2 * SIZE
    await playing.reclaim(after=29)
    assert (await playing.start_write(keys("a"))).statuses == [WRITING]
    await playing.reclaim(after=2)
    assert (await playing.start_write(keys("a"))).statuses == [WRITE]
    assert await playing.finish(keys("a", "b"), dead) == [Ending.EXPIRED] * 2
    assert await playing.hits(keys("a")) == 0
    await playing.settle()
    assert (await playing.account("g/team")).used == 0
    assert not files(playing.root)


async def test_finishing_once_more_says_the_same(playing: Playing) -> None:
    started = await playing.write(keys("a"))
    assert await playing.finish(keys("a"), started) == [Ending.SERVING]


async def test_blocks_that_only_tokens_name(playing: Playing) -> None:
    tokens = list(range(40))
    names = block_keys("chat", tokens, 16)
    assert len(names) == 2
    await playing.write(names)
    assert await playing.hits(block_keys("chat", [*tokens[:32], 7, 7], 16)) == 2
    assert await playing.hits(block_keys("chat", [*tokens[:16], 7, *tokens[17:]], 16)) == 1
    # The same tokens behind another prefix are another block.
    assert block_keys("chat", tokens[16:32], 16)[0] not in names
    assert block_keys("other", tokens, 16)[0] not in names


async def test_a_query_by_key_looks_at_each_key_alone(playing: Playing) -> None:
    await playing.write(keys("a", "b", "c"))
    match = await playing.match(keys("c", "x", "a"), query="key")
    assert [bool(block.locations) for block in match.blocks] == [True, False, True]


@pytest.mark.parametrize(
    ("there", "asked", "window", "first", "found"),
    [
        (range(10), 12, 4, 6, 4),
        (range(10), 10, 20, 0, 10),
        (range(2), 10, 4, 0, 2),
        ([0, 1, 2, 3, 5, 6, 7, 9], 10, 3, 5, 3),
        ([1, 2], 5, 3, 0, 0),
        (range(400), 400, 3, 397, 3),
    ],
)
async def test_a_query_by_window_wants_the_last_blocks_only(
    playing: Playing, there: list[int], asked: int, window: int, first: int, found: int
) -> None:
    sliding = Instance("sliding", "team", 16, (Spec("tp0", SIZE),), needs_prefix=False)
    await playing.manager.catalog.register_instance(sliding)
    names = prompt("p", asked)
    await playing.write(names, sliding)
    await playing.manager.remover.remove_cache(sliding, [names[index] for index in range(asked) if index not in there])
    match = await playing.match(names, sliding, query="window", window=window)
    assert (match.first, len(match.blocks)) == (first, found)


async def test_a_suffix_without_its_prefix_is_not_stored(playing: Playing) -> None:
    started = await playing.start_write(keys("a", "b", "c"), first=1)
    assert started.statuses == [NO_PREFIX] * 3
    assert not started.locations


async def test_instances_find_nothing_of_each_other(playing: Playing) -> None:
    other = Instance("other", "team", 16, (Spec("tp0", SIZE),))
    await playing.manager.catalog.register_instance(other)
    await playing.write(keys("a"))
    assert await playing.hits(keys("a"), other) == 0
    assert (await playing.start_write(keys("a"), other)).statuses == [WRITE]


async def test_all_ranks_parts_live_together(playing: Playing) -> None:
    ranks = Instance("tp2", "team", 16, (Spec("tp0", SIZE), Spec("tp1", 100)), spec_sets={"first": ("tp0",)})
    await playing.manager.catalog.register_instance(ranks)
    started = await playing.write(keys("a", "b"), ranks, spec_sets=["", "first"])
    assert [spec.name for spec in started.locations[0].specs] == ["tp0", "tp1"]
    assert [spec.name for spec in started.locations[1].specs] == ["tp0"]
    assert (await playing.account("i/tp2/FileSystem")).used == 2 * SIZE + 100
    assert await playing.hits(keys("a", "b"), ranks) == 2
    both = await playing.match(keys("a", "b"), ranks, specs=frozenset({"tp0", "tp1"}))
    assert len(both.blocks) == 1
    with pytest.raises(ValueError, match="spec set last is not one of"):
        await playing.start_write(keys("c"), ranks, spec_sets=["last"])


HYBRID = Instance(
    "hybrid", "team", 16, (Spec("full", SIZE), Spec("linear", 100)), spec_sets={"full": ("full",), "rest": ("linear",)}
)


async def test_a_block_that_has_some_parts_only_is_written_to_who_has_more(playing: Playing) -> None:
    await playing.manager.catalog.register_instance(HYBRID)
    names = keys("a", "b")
    await playing.write(names, HYBRID, spec_sets=["full", "full"])
    lacking = await playing.match(names, HYBRID, specs=frozenset({"linear"}))
    assert not lacking.blocks
    some = await playing.start_write(names, HYBRID, spec_sets=["full", "rest"])
    assert some.statuses == [SERVING, WRITE]
    more = await playing.start_write(names, HYBRID)
    assert more.statuses == [WRITE, WRITE]
    again = await playing.start_write(names, HYBRID)
    assert again.statuses == [WRITING, WRITING]
    await playing.finish(names, more, HYBRID)
    whole = await playing.match(names, HYBRID, specs=frozenset({"full", "linear"}))
    assert len(whole.blocks) == 2
    assert (await playing.start_write(names, HYBRID, spec_sets=["full", ""])).statuses == [SERVING, SERVING]


async def test_a_location_goes_when_another_one_in_its_type_has_all_of_its_parts(playing: Playing) -> None:
    await playing.manager.catalog.register_instance(HYBRID)
    names = keys("a")
    await playing.write(names, HYBRID, spec_sets=["full"])
    read = (await playing.match(names, HYBRID)).blocks[0].locations[0]
    await playing.write(names, HYBRID)
    (there,) = (await playing.match(names, HYBRID)).blocks[0].locations
    assert [spec.name for spec in there.specs] == ["full", "linear"]
    await playing.reclaim(after=playing.manager.settings.timing.lease)
    assert path_of(read)[0].exists()
    await playing.reclaim(after=60)
    assert not path_of(read)[0].exists()
    assert (await playing.account("i/hybrid/FileSystem")).used == SIZE + 100


async def test_a_writer_with_fewer_parts_that_ends_last_has_its_location_go(playing: Playing) -> None:
    await playing.manager.catalog.register_instance(HYBRID)
    names = keys("a")
    some = await playing.start_write(names, HYBRID, spec_sets=["full"])
    await playing.write(names, HYBRID)
    for _ in range(2):
        # The second time, the caller repeats the call.
        assert await playing.finish(names, some, HYBRID) == [Ending.SERVING]
    (there,) = (await playing.match(names, HYBRID)).blocks[0].locations
    assert [spec.name for spec in there.specs] == ["full", "linear"]
    await playing.settle()
    assert (await playing.account("i/hybrid/FileSystem")).used == SIZE + 100


async def test_a_whole_write_that_loses_a_race_for_the_last_room_keeps_none_of_it(playing: Playing) -> None:
    await playing.group(limit=3 * WRITE_AT_ONCE * SIZE)
    names = [prompt(name, 2 * WRITE_AT_ONCE) for name in ("x", "y")]
    both = await asyncio.gather(*(playing.start_write(each, whole=True) for each in names))
    written = sorted(len(each.locations) for each in both)
    assert written in ([0, 0], [0, 2 * WRITE_AT_ONCE])
    await playing.reclaim()
    assert (await playing.account("g/team")).used == sum(written) * SIZE


async def test_what_is_removed_is_gone_at_once_and_deleted_when_no_reader_is_left(playing: Playing) -> None:
    await playing.write(keys("a", "b"))
    read = (await playing.match(keys("a", "b"))).blocks[1].locations[0]
    removed = await playing.manager.remover.remove_cache(INSTANCE, keys("b"))
    assert (removed.blocks, removed.bytes) == (1, SIZE)
    assert await playing.hits(keys("a", "b")) == 1
    await playing.reclaim(after=playing.manager.settings.timing.lease)
    assert path_of(read)[0].exists()
    await playing.reclaim(after=60)
    assert not path_of(read)[0].exists()
    assert (await playing.account("g/team")).used == SIZE


async def test_a_manager_that_starts_again_after_its_leases_have_ended_lets_go_of_what_they_held(
    store: Callable[[], IndexBackend], tmp_path: Path
) -> None:
    """A reader's lease, and a writer's, end while no manager runs."""
    first = await Playing(store(), tmp_path).start()
    await first.write(keys("a", "b"))
    read = (await first.match(keys("a", "b"))).blocks[1].locations[0]
    await first.manager.remover.remove_cache(INSTANCE, keys("b"))
    dead = await first.start_write(keys("c"), write_seconds=30)
    await first.manager.touches.flush()
    await first.stop()

    first.clock.sleep(3600)
    again = await Playing(store(), tmp_path, first.clock).start(with_catalog=False)
    await again.storage("disk")
    assert await again.hits(keys("a", "b")) == 1
    await again.reclaim()
    assert not path_of(read)[0].exists()
    assert await again.finish(keys("c"), dead) == [Ending.EXPIRED]
    await again.settle()
    assert len(files(tmp_path)) == 1
    assert (await again.account("g/team")).used == SIZE
    assert (await again.start_write(keys("a", "b", "c"))).statuses[1:] == [WRITE, WRITE]
    await again.audit()
    await again.stop()


async def test_a_block_that_was_removed_can_be_written_anew_at_once(playing: Playing) -> None:
    await playing.write(keys("a"))
    await playing.manager.remover.remove_cache(INSTANCE, keys("a"))
    await playing.write(keys("a"))
    await playing.settle()
    assert await playing.hits(keys("a")) == 1
    assert (await playing.account("g/team")).used == SIZE


async def test_a_hole_is_filled_again(playing: Playing) -> None:
    await playing.write(keys("a", "b", "c"))
    await playing.manager.remover.remove_cache(INSTANCE, keys("b"))
    await playing.settle()
    assert await playing.hits(keys("a", "b", "c")) == 1
    assert (await playing.write(keys("a", "b", "c"))).statuses == [SERVING, WRITE, SERVING]
    assert await playing.hits(keys("a", "b", "c")) == 3


async def test_trimming_takes_ends_first_and_what_was_used_last_at_last(playing: Playing) -> None:
    await playing.write(prompt("old", 5))
    playing.clock.sleep(100)
    await playing.write(prompt("new", 5))
    removed = await playing.manager.remover.trim_cache(INSTANCE, "FileSystem", to_bytes=7 * SIZE)
    assert removed.blocks == 3
    assert await playing.hits(prompt("old", 5)) == 2
    assert await playing.hits(prompt("new", 5)) == 5
    await playing.manager.touches.flush()
    removed = await playing.manager.remover.trim_cache(INSTANCE, "FileSystem", unused_for=50)
    assert removed.blocks == 0, "both were used by the queries"
    playing.clock.sleep(100)
    await playing.match(prompt("new", 3))
    await playing.manager.touches.flush()
    removed = await playing.manager.remover.trim_cache(INSTANCE, "FileSystem", unused_for=50)
    assert await playing.hits(prompt("old", 5)) == 0
    assert await playing.hits(prompt("new", 5)) == 3


async def test_an_instance_is_emptied_without_a_trace(playing: Playing) -> None:
    for name in "xyz":
        await playing.write([*keys("root"), *prompt(name, 20)])
    await playing.manager.remover.trim_cache(INSTANCE, "FileSystem")
    await playing.settle()
    assert await playing.manager.index.count("blocks/team/chat") == 0
    assert not files(playing.root)


async def test_no_write_begins_beyond_the_quota(playing: Playing) -> None:
    await playing.group(limit=3 * SIZE)
    started = await playing.write(prompt("a", 5))
    assert started.statuses == [WRITE, WRITE, WRITE, NO_ROOM, NO_ROOM]
    assert (await playing.start_write(keys("b"))).statuses == [NO_ROOM]
    await playing.group(limit=4 * SIZE)
    assert (await playing.start_write(keys("b"))).statuses == [WRITE]


async def test_a_full_type_gives_way_to_the_next(playing: Playing) -> None:
    await playing.storage("cold", more={"slots_per_file": 4})
    await playing.group(["disk", "cold"], types={"FileSystem": Quota(100 * SIZE)})
    await playing.storage("disk", limit=2 * SIZE)
    started = await playing.write(prompt("a", 5))
    assert [started.locations[index].storage for index in range(5)] == ["disk"] * 2 + ["cold"] * 3
    assert await playing.hits(prompt("a", 5)) == 5


async def test_blocks_share_large_files_and_no_slot_is_lost(playing: Playing) -> None:
    await playing.storage("large", more={"slots_per_file": 4})
    await playing.group(["large"])
    started = await playing.write(prompt("a", 10))
    places = [path_of(location) for location in started.locations.values()]
    assert len({path for path, _, _ in places}) == 3
    assert len(set(places)) == 10
    assert all("blkid=" in location.specs[0].uri for location in started.locations.values())
    assert await playing.hits(prompt("a", 10)) == 10
    await playing.manager.remover.remove_cache(INSTANCE, prompt("a", 10)[6:])
    await playing.settle()
    again = await playing.write(prompt("b", 6))
    assert {path_of(location)[0] for location in again.locations.values()} <= {path for path, _, _ in places}
    assert await playing.hits(prompt("b", 6)) == 6
    assert await playing.hits(prompt("a", 10)) == 6


async def test_a_storage_that_is_disabled_is_neither_read_nor_written(playing: Playing) -> None:
    await playing.storage("other")
    await playing.group(["disk", "other"])
    await playing.write(keys("a"))
    await playing.storage("disk", enabled=False)
    assert await playing.hits(keys("a")) == 0
    assert (await playing.write(keys("b"))).locations[0].storage == "other"
    await playing.storage("disk", enabled=True)
    assert await playing.hits(keys("a")) == 1
    assert (await playing.write(keys("c"))).locations[0].storage == "disk"


async def test_what_only_a_disabled_storage_has_is_written_to_the_next_one(playing: Playing) -> None:
    await playing.storage("other")
    await playing.group(["disk", "other"])
    await playing.write(keys("a", "b"))
    await playing.storage("disk", enabled=False)
    started = await playing.write(keys("a", "b"))
    assert {location.storage for location in started.locations.values()} == {"other"}
    assert await playing.hits(keys("a", "b")) == 2
    assert (await playing.write(keys("a", "b"))).statuses == [WriteStatus.SERVING, WriteStatus.SERVING]
    await playing.storage("disk", enabled=True)
    assert await playing.hits(keys("a", "b")) == 2
    assert (await playing.account("s/disk")).used == (await playing.account("s/other")).used == 2 * SIZE


async def test_what_a_disabled_storage_has_is_a_prefix_for_who_has_it_no_more(playing: Playing) -> None:
    await playing.storage("other")
    await playing.group(["disk", "other"])
    await playing.write(keys("a"))
    await playing.storage("disk", enabled=False)
    started = await playing.write(keys("a", "b"), first=1)
    assert started.statuses == [WriteStatus.SERVING, WriteStatus.WRITE]
    assert await playing.hits(keys("a", "b")) == 0
    await playing.storage("disk", enabled=True)
    assert await playing.hits(keys("a", "b")) == 2


async def test_a_storage_that_breaks_is_passed_over_and_tried_again(playing: Playing) -> None:
    await playing.storage("other")
    await playing.group(["disk", "other"])
    root = playing.root / "disk"
    root.rename(playing.root / "away")
    root.write_text("no folder")
    started = await playing.start_write(keys("a", "b"))
    assert {location.storage for location in started.locations.values()} == {"other"}
    assert not playing.manager.storages.is_available("disk")
    assert await playing.finish(keys("a", "b"), started) == [Ending.SERVING] * 2
    assert await playing.hits(keys("a", "b")) == 2
    # Places that no writer was given are not kept until the writer's deadline.
    assert {location.until for location in await playing.locations("a") if not location.is_live} == {playing.clock.now}
    root.unlink()
    (playing.root / "away").rename(root)
    await playing.manager.storages.probe("disk")
    assert (await playing.write(keys("c"))).locations[0].storage == "disk"
    await playing.settle()
    assert (await playing.account("s/disk")).used == SIZE


async def test_what_a_storage_does_not_delete_is_tried_again(playing: Playing) -> None:
    await playing.storage("other")
    await playing.group(["other"])
    await playing.write(keys("a"))
    await playing.group(["disk"])
    await playing.write(keys("b"))
    await playing.manager.remover.remove_cache(INSTANCE, keys("a", "b"))
    aside = playing.root / "aside"
    folder = next((playing.root / "other" / "objects").iterdir())
    folder.rename(aside)
    folder.write_text("no folder")
    await playing.reclaim(after=3600)
    assert (await playing.account("s/other")).used == SIZE
    assert (await playing.account("s/disk")).used == 0
    folder.unlink()
    aside.rename(folder)
    await playing.reclaim(after=3600)
    assert (await playing.account("g/team")).used == 0
    assert not files(playing.root)


async def test_a_storage_that_does_not_answer_keeps_nothing_from_being_deleted_elsewhere(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await playing.storage("other")
    for storage, name in (("other", "a"), ("disk", "b")):
        await playing.group([storage])
        await playing.write(keys(name))
    await playing.manager.remover.remove_cache(INSTANCE, keys("a", "b"))
    with monkeypatch.context() as hanging:
        hanging.setattr(data_storage_manager, "ANSWER_SECONDS", 0.05)
        hanging.setattr(playing.manager.storages.backend("other"), "delete", lambda _: asyncio.Event().wait())
        await playing.reclaim(after=3600)
    assert (await playing.account("s/other")).used == SIZE
    assert (await playing.account("s/disk")).used == 0
    await playing.reclaim(after=3600)
    assert (await playing.account("g/team")).used == 0


async def test_a_folder_that_hangs_takes_no_thread_of_another(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of a server that is gone: a read from a pipe without a writer hangs as long."""
    await playing.storage("other")
    owner = playing.root / "disk" / "owner"
    owner.unlink()
    os.mkfifo(owner)
    storages = playing.manager.storages
    try:
        with monkeypatch.context() as hurried:
            hurried.setattr(data_storage_manager, "PROBE_TIMEOUT_SECONDS", 0.2)
            await asyncio.gather(*(storages.probe("disk") for _ in range(64)))
        assert not storages.is_available("disk")
        await storages.probe("other")
        assert storages.is_available("other")
    finally:
        pipe = os.open(owner, os.O_RDWR)
        owner.unlink()
        os.close(pipe)


async def test_objects_without_a_record_are_removed_and_others_are_not(playing: Playing) -> None:
    await playing.write(keys("a", "b"))
    lost = files(playing.root)[0].with_name("00ff-abcdefghij.tp0")
    lost.write_bytes(b"late")
    unknown = lost.with_name("not a part")
    unknown.write_bytes(b"")
    playing.clock.now = 1e12
    assert await playing.manager.orphans.scan() == 1
    assert not lost.exists()
    assert unknown.exists()
    assert await playing.hits(keys("a", "b")) == 2


async def test_no_floor_is_taken_by_others(playing: Playing) -> None:
    other = Instance("other", "team", 16, (Spec("tp0", SIZE),))
    await playing.manager.catalog.register_instance(other)
    own = {"chat": {"FileSystem": InstanceQuota(reserved=4 * SIZE)}}
    await playing.group(limit=10 * SIZE, watermark=0.5, instances=own)
    await playing.write(prompt("mine", 2))
    assert (await playing.write(prompt("flood", 20), other)).statuses.count(WRITE) == 6
    assert (await playing.write(prompt("mine", 20))).statuses.count(WRITE) == 2
    playing.clock.sleep(1000)
    await playing.match(prompt("flood", 20), other)
    await playing.settle()
    # What was promised stays, though it was used less lately; the rest pays for the watermark.
    assert await playing.hits(prompt("mine", 20)) == 4
    assert (await playing.account("g/team")).used == 5 * SIZE


async def test_what_is_above_a_floor_pays_and_the_floor_does_not(playing: Playing) -> None:
    other = Instance("other", "team", 16, (Spec("tp0", SIZE),))
    await playing.manager.catalog.register_instance(other)
    await playing.write(prompt("mine", 6))
    playing.clock.sleep(1000)
    await playing.write(prompt("flood", 6), other)
    own = {"chat": {"FileSystem": InstanceQuota(reserved=4 * SIZE)}}
    await playing.group(limit=12 * SIZE, watermark=0.5, instances=own)
    await playing.settle()
    assert await playing.hits(prompt("mine", 6)) == 4
    assert await playing.hits(prompt("flood", 6), other) == 2


async def test_a_promise_that_is_made_while_others_hold_everything_is_kept(playing: Playing) -> None:
    other = Instance("other", "team", 16, (Spec("tp0", SIZE),))
    await playing.manager.catalog.register_instance(other)
    await playing.group(limit=10 * SIZE)
    await playing.write(prompt("flood", 10), other)
    await playing.group(limit=10 * SIZE, instances={"chat": {"FileSystem": InstanceQuota(reserved=4 * SIZE)}})
    assert (await playing.start_write(prompt("mine", 4))).statuses == [NO_ROOM] * 4
    await playing.settle()
    assert (await playing.write(prompt("mine", 4))).statuses == [WRITE] * 4
    assert await playing.hits(prompt("flood", 10), other) == 6


async def test_watermarks_evict_by_storage_type_and_in_total(playing: Playing) -> None:
    await playing.write(prompt("a", 10))
    await playing.group(types={"FileSystem": Quota(10 * SIZE, 0.8)})
    await playing.settle()
    assert await playing.hits(prompt("a", 10)) == 8
    await playing.group(limit=10 * SIZE, watermark=0.5)
    await playing.settle()
    assert await playing.hits(prompt("a", 10)) == 5


async def test_a_full_storage_evicts_at_the_cost_of_its_groups(playing: Playing) -> None:
    await playing.write(prompt("a", 10))
    await playing.storage("disk", limit=10 * SIZE, watermark=0.7)
    await playing.settle()
    assert await playing.hits(prompt("a", 10)) == 7


async def test_lfu_spares_what_is_asked_for_often(playing: Playing) -> None:
    await playing.write(prompt("often", 2))
    for _ in range(3):
        await playing.match(prompt("often", 2))
    playing.clock.sleep(10)
    await playing.write(prompt("lately", 2))
    await playing.group(limit=4 * SIZE, watermark=0.5, eviction_policy="LFU")
    await playing.settle()
    assert await playing.hits(prompt("often", 2)) == 2
    assert await playing.hits(prompt("lately", 2)) == 0


async def test_lfu_forgets_what_was_asked_for_often_long_ago(playing: Playing) -> None:
    await playing.group(limit=8 * SIZE, watermark=0.5, eviction_policy="LFU")
    await playing.write(prompt("former", 4))
    for _ in range(7):
        await playing.match(prompt("former", 4))
    await playing.reclaim()
    playing.clock.sleep(2 * HALF_LIFE_SECONDS)
    await playing.write(prompt("early", 4))
    await playing.settle()
    assert await playing.hits(prompt("early", 4)) == 0
    assert await playing.hits(prompt("former", 4)) == 4
    playing.clock.sleep(5 * HALF_LIFE_SECONDS)
    await playing.write(prompt("new", 4))
    await playing.settle()
    assert await playing.hits(prompt("new", 4)) == 4
    assert await playing.hits(prompt("former", 4)) == 0


async def test_ttl_evicts_what_was_not_used(playing: Playing) -> None:
    await playing.group(ttl_seconds=100)
    await playing.write([*keys("root"), *prompt("a", 3)])
    playing.clock.sleep(60)
    await playing.write([*keys("root"), *prompt("b", 3)])
    await playing.reclaim(after=60)
    assert await playing.hits([*keys("root"), *prompt("a", 3)]) == 1
    assert await playing.hits([*keys("root"), *prompt("b", 3)]) == 4


@pytest.mark.parametrize("lost", ["groups", "accounts"])
async def test_a_lost_table_of_quotas_evicts_no_block(playing: Playing, lost: str) -> None:
    await playing.group(limit=10 * SIZE, watermark=0.9, ttl_seconds=100)
    await playing.write(prompt("a", 8))
    if lost == "groups":
        await playing.manager.index.delete("groups", keys("team"))
    else:
        await playing.group()
    playing.manager.catalog.is_stale = True
    await playing.manager.refresh()
    await playing.settle()
    assert await playing.hits(prompt("a", 8)) == 8


async def test_suffixes_go_before_what_they_hang_on(playing: Playing) -> None:
    """Whatever was used last, what is left of each prompt is its beginning."""
    for name in "abcde":
        await playing.write([*prompt("system", 3), *prompt(name, 4)])
        playing.clock.sleep(1)
    await playing.match([*prompt("system", 3), *prompt("b", 4)])
    for left in range(22, -1, -3):
        await playing.group(limit=23 * SIZE, watermark=max(left, 0.001) / 23)
        await playing.settle()
        total = set()
        for name in "abcde":
            names = [*prompt("system", 3), *prompt(name, 4)]
            there = await playing.match(names, query="key")
            found = [bool(block.locations) for block in there.blocks]
            assert found == sorted(found, reverse=True)
            total |= {key for key, is_there in zip(names, found, strict=True) if is_there}
        assert len(total) == left


async def test_a_reservation_is_made_with_the_record_in_records(playing: Playing) -> None:
    await playing.start_write(keys("a"))
    (entry,) = await playing.manager.index.get("blocks/team/chat", keys("a"))
    assert entry is not None
    assert [location.state for location in entry.value.locations] == [State.WRITING]


async def test_one_that_can_not_begin_lets_go_of_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next one would find a file that another process has."""

    async def fail(*_: object) -> None:
        raise IndexUnavailable("it does not answer")

    failing = SqliteBackend(tmp_path / "index.db")
    monkeypatch.setattr(failing, "scan", fail)
    with pytest.raises(IndexUnavailable):
        await Playing(failing, tmp_path).start(with_catalog=False)
    made = await Playing(SqliteBackend(tmp_path / "index.db"), tmp_path).start(with_catalog=False)
    await made.stop()

"""MetaIndex, over SQLite and over a real Redis."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest

from tenantzone_manager.core.books import RankChange
from tenantzone_manager.core.quota import Account, Charge, OverLimit, Terms
from tenantzone_manager.index.backend import Address, Change, Commit, Conflict, IndexBackend
from tenantzone_manager.index.meta_index import Codec, Found, IndexSettings, MetaIndex
from tests.manager.playing import eventually

Store = Callable[[], IndexBackend]
NUMBERS = Codec(msgspec.msgpack.encode, msgspec.msgpack.decode)


def an_index(store: Store, **settings: Any) -> MetaIndex:
    return MetaIndex(store(), lambda _: NUMBERS, IndexSettings(**settings))


@pytest.fixture
async def index(store: Store) -> AsyncIterator[MetaIndex]:
    made = an_index(store)
    await made.start()
    yield made
    await made.close()


async def values(index: MetaIndex, space: str, *keys: bytes) -> list[Any]:
    return [entry and entry.value for entry in await index.get(space, keys)]


async def test_records_are_put_updated_and_deleted(index: MetaIndex) -> None:
    await index.put("a", {b"1": 1, b"2": 2})
    assert await index.update("a", {b"2": 22, b"3": 33}) == [b"2"]
    assert await values(index, "a", b"1", b"2", b"3") == [1, 22, None]
    await index.delete("a", [b"1"])
    assert await values(index, "a", b"1", b"2") == [None, 22]
    assert await values(index, "b", b"2") == [None]
    assert await index.count("a") == 1


async def test_the_size_grows_with_the_records(store: Store) -> None:
    backend = store()
    index = MetaIndex(backend, lambda _: NUMBERS, IndexSettings())
    await index.start()
    before = await backend.size()
    for start in range(0, 20_000, 5_000):
        await index.put("a", {b"%d" % number: number for number in range(start, start + 5_000)})
    assert await backend.size() - before > 20_000
    await index.close()


async def test_what_was_committed_is_there_after_a_restart(store: Store) -> None:
    index = an_index(store)
    await index.start()
    await index.put("a", {b"1": 1})
    await index.close()
    index = an_index(store)
    await index.start()
    assert await values(index, "a", b"1") == [1]
    await index.close()


async def test_a_modifier_adds_changes_and_deletes_at_once(index: MetaIndex) -> None:
    await index.put("a", {b"1": 1, b"2": 2})
    one, two, three = (Address("a", key) for key in (b"1", b"2", b"3"))

    def modifier(found: Found) -> Mapping[Address, Any]:
        assert found == {one: 1, two: 2, three: None}
        return {one: 10, two: None, three: 3}

    await index.read_modify_write([one, two, three], modifier)
    assert await values(index, "a", b"1", b"2", b"3") == [10, None, 3]


async def test_a_modifier_that_raises_changes_nothing(index: MetaIndex) -> None:
    def modifier(found: Found) -> Mapping[Address, Any]:
        raise LookupError

    with pytest.raises(LookupError):
        await index.read_modify_write([Address("a", b"1")], modifier)
    assert await values(index, "a", b"1") == [None]


async def test_no_addition_is_lost_among_two_processes(redis_store: Store) -> None:
    """Each has locks of its own; what makes it atomic is the comparison in the store."""
    indices = [an_index(redis_store), an_index(redis_store)]
    for index in indices:
        await index.start()
    at = Address("a", b"sum")

    async def add(index: MetaIndex) -> None:
        for _ in range(25):
            await index.read_modify_write([at], lambda found: {at: (found[at] or 0) + 1})

    await asyncio.gather(*(add(index) for index in indices for _ in range(3)))
    assert await values(indices[0], "a", b"sum") == [150]
    assert sum(index.conflicts for index in indices) > 0
    for index in indices:
        await index.close()


async def test_many_records_are_changed_in_batches_that_share_no_lock(store: Store) -> None:
    index = an_index(store, lock_shards=8, batch_size=10)
    await index.start()
    batches: list[set[Address]] = []

    def modifier(found: Found) -> Mapping[Address, Any]:
        batches.append(set(found))
        return dict.fromkeys(found, 1)

    await index.read_modify_write_batches("a", [bytes([key]) for key in range(100)], modifier)
    shards = [{index._locks.shard(address) for address in batch} for batch in batches]
    assert len(batches) > 1
    assert sum(map(len, shards)) == len(set.union(*shards))
    assert await index.count("a") == 100
    await index.close()


async def test_who_reads_waits_for_no_lock(index: MetaIndex) -> None:
    await index.put("a", {b"1": 1})
    async with index._locks.held([Address("a", b"1")]):
        assert await asyncio.wait_for(values(index, "a", b"1"), 5) == [1]


@pytest.mark.parametrize("shards", [0, 3, 12])
def test_the_number_of_shards_is_a_power_of_two(store: Store, shards: int) -> None:
    with pytest.raises(ValueError, match="must be a power of two"):
        an_index(store, lock_shards=shards)


async def test_a_write_is_seen_by_who_has_read_before(index: MetaIndex) -> None:
    await index.put("a", {b"1": 1})
    assert await values(index, "a", b"1") == [1]
    await index.put("a", {b"1": 2})
    assert await values(index, "a", b"1") == [2]


async def test_the_search_cache_spares_the_store(index: MetaIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    await index.put("a", {b"1": 1})
    await values(index, "a", b"1")

    async def fails(space: str, keys: object) -> list[bytes | None]:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(index.backend, "get", fails)
    assert await values(index, "a", b"1") == [1]


async def test_another_process_s_write_is_seen(redis_store: Store) -> None:
    ours, theirs = an_index(redis_store, max_age_seconds=3600), an_index(redis_store, max_age_seconds=3600)
    await ours.start()
    await theirs.start()
    await ours.put("a", {b"1": 1})
    assert await values(theirs, "a", b"1") == [1]
    await ours.put("a", {b"1": 2})
    await eventually(lambda: values(theirs, "a", b"1"), [2])
    await ours.close()
    await theirs.close()


async def test_a_cached_record_is_not_believed_for_long_if_the_word_of_its_change_is_lost(redis_store: Store) -> None:
    ours, theirs = an_index(redis_store), an_index(redis_store, max_age_seconds=1e-9)
    await ours.start()
    await theirs.start()
    theirs.cache.invalidate = lambda *_: None  # type: ignore[method-assign]
    await ours.put("a", {b"1": 1})
    assert await values(theirs, "a", b"1") == [1]
    await ours.put("a", {b"1": 2})
    assert await values(theirs, "a", b"1") == [2]
    await ours.close()
    await theirs.close()


async def test_a_scan_finds_each_record_and_a_sample_different_ones(index: MetaIndex) -> None:
    wanted = {random.randbytes(16): number for number in range(500)}
    await index.put("a", wanted)
    found: dict[bytes, int] = {}
    cursor = b""
    while True:
        some, cursor = await index.scan("a", cursor, 64)
        found.update(some)
        if not cursor:
            break
    assert found == wanted
    sample = dict(await index.random_sample("a", 20))
    assert len(sample) == 20
    assert sample.items() <= wanted.items()
    assert await index.random_sample("empty", 3) == []
    assert len(await index.random_sample("a", 1)) == 1


async def test_a_commit_is_made_as_a_whole_or_not_at_all(store: Store) -> None:
    backend = store()
    await backend.start(lambda *_: None)
    limited = ("i", "g")
    await backend.commit(Commit(terms=[Terms(("g",), limit=10)]))

    def commit(before: bytes | None, after: bytes, size: int, score: float) -> Commit:
        return Commit(
            [Change(Address("a", b"1"), before, after)],
            [Charge(limited, size)],
            [RankChange("r", b"m", None if before is None else 1.5, score)],
        )

    await backend.commit(commit(None, b"x", 6, 1.5))
    with pytest.raises(Conflict):
        await backend.commit(commit(None, b"y", 1, 2.5))
    with pytest.raises(OverLimit):
        await backend.commit(commit(b"x", b"y", 5, 2.5))
    assert await backend.get("a", [b"1", b"2"]) == [b"x", None]
    assert await backend.lowest("r", 10, 9.0) == [(b"m", 1.5)]
    assert await backend.accounts(["i", "g", "h"]) == {"i": Account(6, 0, 6), "g": Account(6, 0, 6, 0, 10)}
    await backend.commit(commit(b"x", b"y", 4, 1.7e9 + 1e-6))
    assert await backend.lowest("r", 10, 2e9) == [(b"m", 1.7e9 + 1e-6)]
    assert await backend.lowest("r", 10, 1.7e9) == []
    await backend.close()

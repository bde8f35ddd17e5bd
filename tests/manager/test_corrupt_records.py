"""A record that is not what was written is dropped by any reader, and no call fails because of it."""

import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tenantzone_manager import spaces
from tenantzone_manager.core import books
from tenantzone_manager.core.records import Block, encode_block
from tenantzone_manager.core.writing import WriteStatus
from tenantzone_manager.index.backend import Address, Change, Commit, IndexBackend
from tenantzone_manager.index.checksums import CorruptRecord, with_checksum, without_checksum
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager
from tests.manager.playing import INSTANCE, Playing, eventually, prompt

SPACE = spaces.blocks_of(INSTANCE)
BLOCKS = prompt("p", 5)
BROKEN = BLOCKS[2]


async def change(playing: Playing, key: bytes, by: Callable[[bytes], bytes]) -> None:
    """Changes a record without notice, as a faulty disk does."""
    backend = playing.manager.index.backend
    (stored,) = await backend.get(SPACE, [key])
    assert stored is not None
    await backend.commit(Commit([Change(Address(SPACE, key), stored, by(stored))]))
    playing.manager.index.cache.invalidate("", ())


def flipped(stored: bytes) -> bytes:
    """Another bit in the middle, by which it may still be a block."""
    middle = len(stored) // 2
    return stored[:middle] + bytes([stored[middle] ^ 1]) + stored[middle + 1 :]


HARM: dict[str, Callable[[bytes], bytes]] = {
    "a bit": flipped,
    "the first bit": lambda stored: bytes([stored[0] ^ 0x80]) + stored[1:],
    "cut off": lambda stored: stored[:-1],
    "empty": lambda _: b"",
    "no record": lambda _: b"\x91\x05",
    "no checksum": lambda stored: without_checksum(Address(SPACE, BROKEN), stored),
    "another block's": lambda _: with_checksum(Address(SPACE, BLOCKS[1]), encode_block(Block())),
}


async def read(playing: Playing) -> None:
    assert len((await playing.match(BLOCKS)).blocks) == 2


async def look_up(playing: Playing) -> None:
    found = await playing.match(BLOCKS, query="key")
    assert [bool(block.locations) for block in found.blocks] == [True, True, False, True, True]


async def write(playing: Playing) -> None:
    assert (await playing.start_write(BLOCKS)).statuses[2] is WriteStatus.WRITE


async def remove(playing: Playing) -> None:
    await playing.manager.remover.remove_cache(INSTANCE, BLOCKS)


async def scan(playing: Playing) -> None:
    found, _ = await playing.manager.index.scan(SPACE, b"", 100)
    assert {key for key, _ in found} == set(BLOCKS) - {BROKEN}


@pytest.fixture
async def written(store: Callable[[], IndexBackend], tmp_path: Path) -> AsyncIterator[Playing]:
    made = await Playing(store(), tmp_path).start()
    await made.write(BLOCKS)
    yield made
    await made.stop()


@pytest.mark.parametrize("find", [read, look_up, write, remove, scan])
async def test_any_reader_that_finds_it_drops_it(
    written: Playing, find: Callable[[Playing], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    await change(written, BROKEN, flipped)
    await find(written)
    index = written.manager.index
    assert index.corrupt == 1
    await written.match(BLOCKS, query="key")
    assert index.corrupt == 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert f"the record {BROKEN.hex()} of {SPACE} is corrupt and was dropped" in caplog.text


@pytest.mark.parametrize("harm", HARM)
async def test_whatever_has_changed_it_is_found(written: Playing, harm: str) -> None:
    await change(written, BROKEN, HARM[harm])
    await look_up(written)
    assert written.manager.index.corrupt == 1
    await written.write(BLOCKS)
    assert await written.hits(BLOCKS) == 5


async def test_many_are_logged_once_and_stand_in_no_rank(written: Playing, caplog: pytest.LogCaptureFixture) -> None:
    """Else the reclaimer would look for them for ever."""
    begun = prompt("begun", 3)
    await written.start_write(begun)
    for key in (*BLOCKS, *begun):
        await change(written, key, flipped)
    assert not (await written.match(BLOCKS)).blocks
    for key in (*BLOCKS, *begun):
        await written.match([key], query="key")
    assert written.manager.index.corrupt == 8
    assert len(caplog.records) == 1
    for rank in (
        books.queue(books.WRITING, "team"),
        *(books.ends(kind, "chat", "FileSystem") for kind in (books.ENDS, books.FEWEST, books.BORDER)),
    ):
        assert await written.manager.index.lowest(rank, 10) == []
    await written.reclaim(after=3600)


async def test_slots_of_a_large_file_whose_record_is_lost_are_not_given_out_again(written: Playing) -> None:
    """Else blocks would answer with the bytes of others."""
    await written.storage("large", more={"slots_per_file": 8})
    await written.group(["large"])
    first, second = prompt("first", 4), prompt("second", 6)
    await written.write(first)
    space, backend = spaces.slots_of("team", "large"), written.manager.index.backend
    ((key, stored),), _ = await backend.scan(space, b"", 10)
    await backend.commit(Commit([Change(Address(space, key), stored, flipped(stored))]))
    written.manager.index.cache.invalidate("", ())
    await written.write(second)
    assert (await written.hits(first), await written.hits(second)) == (4, 6)
    await written.manager.remover.remove_cache(INSTANCE, first)
    await written.settle()
    await written.write(first)
    assert (await written.hits(first), await written.hits(second)) == (4, 6)
    assert written.manager.index.corrupt == 1


async def test_an_account_that_is_none_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tenantzone_manager.manager.RECLAIM_SECONDS", 0.01)
    playing = await Playing(SqliteBackend(tmp_path / "index.db"), tmp_path).start()
    await playing.write(BLOCKS)
    await playing.stop()
    with contextlib.closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as database:
        database.execute("UPDATE account SET value = x'95' WHERE name = 'g/team'")
    caplog.set_level(logging.INFO, "tenantzone_manager.manager")
    manager = CacheManager(SqliteBackend(tmp_path / "index.db"))
    passes: list[int] = []
    keep_reserve = manager.index.backend.keep_reserve

    async def counted() -> str:
        passes.append(1)
        return await keep_reserve()

    monkeypatch.setattr(manager.index.backend, "keep_reserve", counted)
    await manager.start()

    async def has_tried() -> bool:
        return len(passes) > 5

    await eventually(has_tried, True)
    await manager.stop()
    lines = [record.getMessage() for record in caplog.records if record.name == "tenantzone_manager.manager"]
    assert len(lines) == 1, lines
    assert "index.db" in lines[0]


def test_a_checksum_is_of_the_place_too() -> None:
    stored = with_checksum(Address("space", b"key"), b"content")
    assert without_checksum(Address("space", b"key"), stored) == b"content"
    for other in (Address("other", b"key"), Address("space", b"other")):
        with pytest.raises(CorruptRecord):
            without_checksum(other, stored)

"""The log beside the embedded store's file stays small, whatever else goes on."""

import asyncio
import contextlib
import random
import resource
import sqlite3
import threading

import pytest

from tenantzone_manager.index import sqlite
from tenantzone_manager.index.backend import Address, Change, Commit, IndexUnavailable
from tenantzone_manager.index.sqlite import SqliteBackend

SPACE = "blocks"
TOO_LARGE = 2**31
"""Bytes. A log that is begun anew had less than a seventh of it in these tests."""


async def write_steadily(backend, path, until):
    """Commit after commit, with no more than a turn of the event loop between two."""
    while not until():
        assert log_of(path).stat().st_size < TOO_LARGE
        changes = [Change(Address(SPACE, random.randbytes(32)), None, bytes(110)) for _ in range(65)]
        await backend.commit(Commit(changes))
        await asyncio.sleep(0)


def log_of(path):
    return path.with_name(f"{path.name}-wal")


def begun(path):
    """How often the log was begun anew: a number in its head, https://sqlite.org/walformat.html."""
    with log_of(path).open("rb") as log:
        return int.from_bytes(log.read(16)[12:])


async def stored(path):
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    try:
        return await backend.count(SPACE)
    finally:
        await backend.close()


async def test_beside_steady_writes_the_log_is_begun_anew(tmp_path, monkeypatch):
    # So seldom that a round has much to copy, and is not over before the next write.
    monkeypatch.setattr(sqlite, "CHECKPOINT_SECONDS", 0.5)
    monkeypatch.setattr(sqlite, "LOG_BYTES", 2**20)
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    await write_steadily(backend, path, lambda: begun(path) >= 2)
    written = await backend.count(SPACE)
    await backend.close()
    assert await stored(path) == written > 0, "nothing of it is lost"


async def test_the_log_is_copied_on_after_a_disk_that_took_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sqlite, "CHECKPOINT_SECONDS", 0.01)
    failures = [sqlite3.OperationalError("disk I/O error"), OSError("No space left on device")]
    copied = []
    copy = sqlite._copy_and_sync

    def fail_first(database, file):
        if failures:
            raise failures.pop()
        copied.append(copy(database, file))
        return copied[-1]

    monkeypatch.setattr(sqlite, "_copy_and_sync", fail_first)
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    await write_steadily(backend, path, lambda: any(copied))
    await backend.close()
    assert "its log can't be copied into it now: disk I/O error" in caplog.text
    assert "its log can't be copied into it now: No space left on device" in caplog.text


async def test_a_reader_beside_it_keeps_the_log_and_is_told_of_until_it_ends(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sqlite, "CHECKPOINT_SECONDS", 0.01)
    monkeypatch.setattr(sqlite, "LOG_BYTES", 2**20)
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM record").fetchone()
    await write_steadily(backend, path, lambda: "while another process reads the file" in caplog.text)
    before = begun(path)
    reader.close()
    await write_steadily(backend, path, lambda: begun(path) > before)
    await backend.close()
    assert caplog.text.count("while another process reads the file") == 1


async def test_closing_waits_for_a_thread_that_copies(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "CHECKPOINT_SECONDS", 0.01)
    copies, ended = threading.Event(), []
    copy = sqlite._copy_and_sync

    def copy_for_long(database, file):
        copies.set()
        for _ in range(2000):
            found = copy(database, file)
        ended.append(found)
        return found

    monkeypatch.setattr(sqlite, "_copy_and_sync", copy_for_long)
    backend = SqliteBackend(tmp_path / "index.db")
    await backend.start(lambda *_: None)
    await asyncio.to_thread(copies.wait)
    await backend.close()
    assert ended, "its connection was not closed under it"


@pytest.mark.parametrize("fails", ["when it is committed", "before"])
async def test_names_of_what_the_disk_did_not_take_get_numbers_of_their_own_later(tmp_path, fails):
    path = tmp_path / "index.db"
    # So small that a large write goes to the log before it is committed.
    backend = SqliteBackend(path, cache_bytes=2**16)
    await backend.start(lambda *_: None)

    def put(space, value, records=1):
        return backend.commit(Commit([Change(Address(space, bytes([n])), None, value) for n in range(records)]))

    await put("first", b"1")
    with file_size_bound_to(log_of(path).stat().st_size), pytest.raises(IndexUnavailable):
        await (put("acme", b"A") if fails == "when it is committed" else put("acme", bytes(100_000), 50))
    await put("burst", b"B")
    await put("acme", b"A")
    found = [await backend.get(space, [b"\0"]) for space in ("first", "burst", "acme")]
    await backend.close()
    assert found == [[b"1"], [b"B"], [b"A"]]


@contextlib.contextmanager
def file_size_bound_to(size):
    """As a disk that takes no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

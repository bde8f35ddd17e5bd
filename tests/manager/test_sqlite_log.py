"""The log beside the embedded store's file stays small, whatever else goes on."""

import asyncio
import random
import sqlite3

from tenantzone_manager.index import sqlite
from tenantzone_manager.index.backend import Address, Change, Commit
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
    failures = [sqlite3.OperationalError("disk I/O error"), sqlite3.OperationalError("database or disk is full")]
    copied = []
    copy = sqlite._copy_log

    def fail_first(database):
        if failures:
            raise failures.pop()
        copied.append(copy(database))
        return copied[-1]

    monkeypatch.setattr(sqlite, "_copy_log", fail_first)
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    await write_steadily(backend, path, lambda: any(copied))
    await backend.close()
    assert "its log can't be copied into it now: disk I/O error" in caplog.text

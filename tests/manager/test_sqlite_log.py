"""The log beside the embedded store's file stays small, whatever else goes on."""

import asyncio
import random
import sqlite3
from itertools import count

from tenantzone_manager.index import sqlite
from tenantzone_manager.index.backend import Address, Change, Commit
from tenantzone_manager.index.sqlite import SqliteBackend

SPACE = "blocks"


async def write_steadily(backend, until):
    """Commit after commit, with no more than a turn of the event loop between two."""
    async with asyncio.timeout(60):
        for _ in count():
            await backend.commit(
                Commit([Change(Address(SPACE, random.randbytes(32)), None, bytes(110)) for _ in range(65)])
            )
            await asyncio.sleep(0)
            if until():
                return


def begun(path):
    """How often the log was begun anew: a number in its head, https://sqlite.org/walformat.html."""
    return int.from_bytes(path.with_name(f"{path.name}-wal").read_bytes()[12:16])


async def stored(path):
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    try:
        return await backend.count(SPACE)
    finally:
        await backend.close()


async def test_beside_steady_writes_the_log_is_begun_anew_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "CHECKPOINT_SECONDS", 0.05)
    monkeypatch.setattr(sqlite, "LOG_BYTES", 2**20)
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    commits = count(1)
    last = 0

    def has_begun_three_times():
        nonlocal last
        last = next(commits)
        return begun(path) >= 3

    await write_steadily(backend, has_begun_three_times)
    await backend.close()
    assert await stored(path) == 65 * last, "nothing of it is lost"


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
    backend = SqliteBackend(tmp_path / "index.db")
    await backend.start(lambda *_: None)
    await write_steadily(backend, lambda: any(copied))
    await backend.close()
    assert "its log can't be copied into it now: disk I/O error" in caplog.text

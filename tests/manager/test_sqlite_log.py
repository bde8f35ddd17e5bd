"""The log next to the embedded store's file stays small, whatever else goes on."""

import asyncio
import contextlib
import fcntl
import os
import random
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from functools import partial
from itertools import count

import pytest

from tenantzone_manager.core.books import RankChange
from tenantzone_manager.index import sqlite as sqlite_module
from tenantzone_manager.index import sqlite_log
from tenantzone_manager.index.backend import Address, Change, Commit, IndexUnavailable
from tenantzone_manager.index.sqlite import SqliteBackend
from tests.waiting import await_that

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


async def test_under_steady_writes_the_log_is_begun_anew(tmp_path, monkeypatch):
    # So seldom that a round has much to copy, and is not over before the next write.
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_SECONDS", 0.5)
    monkeypatch.setattr(sqlite_log, "FEW_RECORDS", 1000)
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    await write_steadily(backend, path, lambda: begun(path) >= 2)
    written = await backend.count(SPACE)
    await backend.close()
    assert await stored(path) == written > 0, "nothing of it is lost"


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (sqlite3.OperationalError("disk I/O error"), "disk I/O error"),
        (OSError("No space left on device"), "No space left on device"),
        (MemoryError(), "MemoryError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("where", [(sqlite_log, "copy_log"), (sqlite_log.os, "fsync")], ids=lambda where: where[1])
async def test_the_log_is_copied_on_after_whatever_a_round_failed_at(
    tmp_path, monkeypatch, caplog, failure, reported, where
):
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_SECONDS", 0.01)
    failures = [failure] * 3

    def fail_first(work, *arguments):
        if failures:
            raise failures.pop()
        return work(*arguments)

    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    monkeypatch.setattr(sqlite_log, "FEW_RECORDS", 10)
    monkeypatch.setattr(*where, partial(fail_first, getattr(*where)))
    before = begun(path)
    await write_steadily(backend, path, lambda: begun(path) > before)
    await backend.close()
    assert f"WAL checkpoint failed: {reported}" in caplog.text
    assert not failures


async def test_the_log_is_begun_anew_by_the_thread_so_that_no_write_waits_for_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_SECONDS", 0.01)
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    for number in range(3):
        before = begun(path)
        await put(backend, f"space {number}", b"value")
        await asyncio.to_thread(await_that, lambda before=before: begun(path) > before, "it is begun anew")
    await backend.close()


async def test_after_much_was_copied_no_write_begins_the_log_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_SECONDS", 0.01)
    monkeypatch.setattr(sqlite_log, "FEW_RECORDS", 10)
    syncs, may_end = threading.Event(), threading.Event()

    def sync_for_long(file):
        syncs.set()
        may_end.wait()

    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    monkeypatch.setattr(sqlite_log.os, "fsync", sync_for_long)
    await put(backend, SPACE, b"value", records=50)
    await asyncio.to_thread(syncs.wait)
    before = begun(path)
    await put(backend, "meanwhile", b"value")
    assert begun(path) == before
    may_end.set()
    await asyncio.to_thread(await_that, lambda: begun(path) > before, "the thread begins it anew")
    await backend.close()


async def test_while_the_rest_is_copied_writes_wait_and_reads_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_SECONDS", 0.01)
    copies, may_end, copy = threading.Event(), threading.Event(), sqlite_log.copy_log

    def copy_for_long(database):
        copies.set()
        may_end.wait()
        return copy(database)

    backend = SqliteBackend(tmp_path / "index.db")
    await backend.start(lambda *_: None)
    monkeypatch.setattr(sqlite_log, "copy_log", copy_for_long)
    await put(backend, SPACE, b"before")
    await asyncio.to_thread(copies.wait)
    writing = asyncio.create_task(put(backend, SPACE, b"meanwhile", before=b"before"))
    assert [await backend.get(SPACE, [b"\0"]) for _ in range(3)] == [[b"before"]] * 3
    assert not writing.done()
    may_end.set()
    await writing
    assert await backend.get(SPACE, [b"\0"]) == [b"meanwhile"]
    await backend.close()


async def test_another_process_that_copies_the_log_is_reported_until_it_ends(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_SECONDS", 0.01)
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    await put(backend, SPACE, b"value")
    # Byte 121 is whose who copies, https://sqlite.org/walformat.html.
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 121); print(); input()"
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", hold, f"{path}-shm", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    await other.stdout.readline()
    await write_steadily(
        backend, path, lambda: "checkpoint is incomplete because another process is running one" in caplog.text
    )
    await other.communicate(b"end\n")
    before = begun(path)
    await write_steadily(backend, path, lambda: begun(path) > before)
    await backend.close()


async def test_a_concurrent_reader_keeps_the_log_and_is_reported_until_it_ends(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_SECONDS", 0.01)
    monkeypatch.setattr(sqlite_log, "FEW_RECORDS", 1000)
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
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_SECONDS", 0.01)
    copies, ended, copy = threading.Event(), [], sqlite_log.copy_log

    def copy_for_long(database):
        copies.set()
        for _ in range(2000):
            found = copy(database)
        ended.append(found)
        return found

    backend = SqliteBackend(tmp_path / "index.db")
    await backend.start(lambda *_: None)
    monkeypatch.setattr(sqlite_log, "copy_log", copy_for_long)
    await put(backend, SPACE, b"value")
    await asyncio.to_thread(copies.wait)
    await backend.close()
    assert ended, "its connection was not closed under it"
    await backend.close()


@pytest.mark.parametrize("ask", ["count", "write"])
async def test_a_call_during_the_closing_says_so(tmp_path, ask):
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    await put(backend, SPACE, b"value", records=200)

    async def ask_always(number):
        for turn in count():
            await (backend.count(SPACE) if ask == "count" else put(backend, f"{number}.{turn}", b"value"))
            await asyncio.sleep(0)

    asking = [asyncio.create_task(ask_always(number)) for number in range(5)]
    await asyncio.sleep(0.05)
    await backend.close()
    reported = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(each, IndexUnavailable) and "the index is closed" in str(each) for each in reported), reported
    assert await stored(path) == 200


async def test_who_is_interrupted_while_it_closes_leaves_nothing_open(tmp_path):
    backend = SqliteBackend(tmp_path / "index.db")
    await backend.start(lambda *_: None)
    await put(backend, SPACE, b"value")
    closing = asyncio.create_task(backend.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await backend.close()
    assert await stored(tmp_path / "index.db") == 1


@pytest.mark.parametrize("fails", ["when it is committed", "before"])
async def test_names_of_what_the_disk_did_not_take_get_numbers_of_their_own_later(tmp_path, fails):
    path = tmp_path / "index.db"
    # So small that a large write goes to the log before it is committed.
    backend = SqliteBackend(path, cache_bytes=2**16)
    await backend.start(lambda *_: None)

    await put(backend, "first", b"1")
    what = {"value": b"A"} if fails == "when it is committed" else {"value": bytes(100_000), "records": 50}
    # The log is beyond that already, and has room in its file that it had before it was begun anew.
    with file_size_bound_to(4096), pytest.raises(IndexUnavailable):
        await put(backend, "acme", **what)
    await put(backend, "burst", b"B")
    await put(backend, "acme", b"A")
    found = [await backend.get(space, [b"\0"]) for space in ("first", "burst", "acme")]
    await backend.close()
    assert found == [[b"1"], [b"B"], [b"A"]]


READS = {
    "get": lambda backend: backend.get("never written", [b"key"]),
    "scan": lambda backend: backend.scan(SPACE, b"", 10),
    "random_sample": lambda backend: backend.random_sample(SPACE, 10),
    "count": lambda backend: backend.count(SPACE),
    "lowest": lambda backend: backend.lowest(SPACE, 10, 1.0),
    "accounts": lambda backend: backend.accounts([SPACE]),
}


@pytest.mark.parametrize("read", READS)
async def test_a_read_of_a_damaged_file_is_no_answer_of_the_store(tmp_path, read):
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    await put(backend, SPACE, b"value")
    await backend.close()
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    backend._database.execute("PRAGMA shrink_memory")
    backend._names.clear()
    with pytest.raises(IndexUnavailable, match=r"index\.db: "):
        await READS[read](backend)
    await backend.close()


@pytest.mark.parametrize("content", [b"no database" * 1000, b""], ids=["no database", "a folder for it is full"])
async def test_a_file_that_can_not_be_opened_is_reported_and_left_as_it_was(tmp_path, content):
    path = tmp_path / "index.db"
    path.write_bytes(content)
    with file_size_bound_to(len(content)) if not content else contextlib.nullcontext(), pytest.raises(IndexUnavailable):
        await SqliteBackend(path).start(lambda *_: None)
    assert path.read_bytes() == content
    if not content:
        assert await stored(path) == 0, "its lock is free again"


async def test_reads_of_what_was_never_written_write_nothing(tmp_path):
    backend = SqliteBackend(tmp_path / "index.db")
    await backend.start(lambda *_: None)
    await put(backend, SPACE, b"value")
    size = log_of(tmp_path / "index.db").stat().st_size
    for number in range(10):
        assert await backend.get(f"never {number}", [b"\0"]) == [None]
        assert await backend.scan(f"never {number}", b"", 10) == ([], b"")
        assert await backend.random_sample(f"never {number}", 10) == []
        assert (await backend.count(f"never {number}"), await backend.lowest(f"never {number}", 10, 1.0)) == (0, [])
    assert log_of(tmp_path / "index.db").stat().st_size == size
    await backend.close()


class ForgetfulConnection:
    """A connection that has no memory for the next ROLLBACK."""

    def __init__(self, connection):
        self._connection, self.failures = connection, 1

    def execute(self, statement, *arguments):
        if statement == "ROLLBACK" and self.failures:
            self.failures -= 1
            raise MemoryError
        return self._connection.execute(statement, *arguments)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize("follows", ["read", "write"])
async def test_a_transaction_that_could_not_be_rolled_back_is_before_whatever_follows(tmp_path, follows):
    backend = SqliteBackend(tmp_path / "index.db")
    await backend.start(lambda *_: None)
    await put(backend, SPACE, b"1")
    backend._database = ForgetfulConnection(backend._database)
    wrong = Commit([Change(Address(SPACE, b"\0"), b"1", b"2")], ranks=[RankChange("rank", object(), None, 1.0)])
    with pytest.raises(IndexUnavailable):
        await backend.commit(wrong)
    assert backend._database.failures == 0
    if follows == "write":
        await put(backend, "other", b"3")
        assert await backend.get("other", [b"\0"]) == [b"3"]
    assert await backend.get(SPACE, [b"\0"]) == [b"1"]
    await backend.close()


AWAY = "the file of the index is missing; restore it, or create an empty file"


async def test_a_file_that_is_taken_away_takes_no_more(opened, tmp_path):
    await put(opened, SPACE, b"value")
    path = tmp_path / "index.db"
    path.rename(tmp_path / "elsewhere.db")
    await refused(opened, AWAY)
    for asked in (put(opened, "other", b"value"), opened.get(SPACE, [b"\0"])):
        with pytest.raises(IndexUnavailable, match=AWAY):
            await asked
    await opened.close()
    assert not path.exists(), "no other one is made in its place"
    (tmp_path / "elsewhere.db").rename(path)
    assert await stored(path) == 1, "it has all that was written while it was there"


async def test_the_same_file_that_is_put_back_goes_on(opened, tmp_path):
    await put(opened, SPACE, b"value")
    path = tmp_path / "index.db"
    path.rename(tmp_path / "elsewhere.db")
    await refused(opened, AWAY)
    (tmp_path / "elsewhere.db").rename(path)
    await answers(opened)
    await put(opened, SPACE, b"another", before=b"value")


@pytest.mark.parametrize("way", ["taken", "replaced"])
@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_without_the_files_of_its_log_it_goes_on_with_all_that_was_written(opened, tmp_path, end, way):
    await put(opened, SPACE, b"value", records=50)
    taken = tmp_path / f"index.db{end}"
    taken.rename(tmp_path / "elsewhere")
    if way == "replaced":
        taken.touch()
    await answers(opened, lambda: opened.forgotten)
    assert await opened.count(SPACE) == 50
    await put(opened, SPACE, b"another", before=b"value")
    await opened.close()
    assert await stored(tmp_path / "index.db") == 50


@pytest.mark.parametrize("moved", ["alone", "with its log"])
async def test_another_store_in_its_place_is_opened(opened, tmp_path, moved):
    path = tmp_path / "index.db"
    other = SqliteBackend(tmp_path / "other.db")
    await other.start(lambda *_: None)
    await put(other, "another space", b"other", records=3)
    await other.close()
    await put(opened, SPACE, b"value", records=50)
    for end in ("", "-wal", "-shm") if moved == "with its log" else ("",):
        path.with_name(f"index.db{end}").rename(tmp_path / f"elsewhere.db{end}")
    (tmp_path / "other.db").rename(path)
    await answers(opened, lambda: opened.forgotten)
    # A log that was left would bring back the other's pages, in the midst of this one's.
    assert (await opened.count(SPACE), await opened.count("another space")) == (0, 3)
    await put(opened, SPACE, b"new")
    assert await opened.get("another space", [b"\0"]) == [b"other"]
    await opened.close()
    assert await stored(path) == 1
    assert await stored(tmp_path / "elsewhere.db") == 50, "the one that was moved has all that was written to it"


async def test_another_store_in_its_place_keeps_a_log_of_its_own(opened, tmp_path):
    other = SqliteBackend(tmp_path / "other.db")
    await other.start(lambda *_: None)
    await put(other, "another space", b"other", records=3)
    # As a process that was killed left it.
    for end in ("", "-wal"):
        shutil.copyfile(tmp_path / f"other.db{end}", tmp_path / f"copy.db{end}")
    await other.close()
    await put(opened, SPACE, b"value", records=50)
    for end in ("-wal", ""):
        (tmp_path / f"copy.db{end}").rename(tmp_path / f"index.db{end}")
    await answers(opened, lambda: opened.forgotten)
    assert (await opened.count(SPACE), await opened.count("another space")) == (0, 3)


async def test_an_empty_file_in_its_place_begins_a_new_store(opened, tmp_path):
    await put(opened, SPACE, b"value")
    for path in tmp_path.iterdir():
        path.unlink()
    await refused(opened, AWAY)
    (tmp_path / "index.db").touch()
    await answers(opened)
    assert await opened.count(SPACE) == 0
    await put(opened, SPACE, b"value")
    with pytest.raises(BlockingIOError):
        await SqliteBackend(tmp_path / "index.db").start(lambda *_: None)


async def test_what_is_no_store_is_reported_until_there_is_one(opened, tmp_path):
    await put(opened, SPACE, b"value")
    path = tmp_path / "index.db"
    path.rename(tmp_path / "elsewhere.db")
    path.write_bytes(b"no database" * 1000)
    await refused(
        opened, "the file of the index was replaced, and the new file can't be opened: .*file is not a database"
    )
    path.unlink()
    await refused(opened, AWAY)
    # Half of a store, as while it is being copied.
    whole = (tmp_path / "elsewhere.db").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    await refused(opened, "can't be opened: .*malformed")
    path.write_bytes(whole)
    await answers(opened)
    assert await opened.get(SPACE, [b"\0"]) == [b"value"]


async def test_a_store_with_another_writer_is_not_opened(opened, tmp_path):
    path = tmp_path / "index.db"
    path.unlink()
    await refused(opened, AWAY)
    waits = "once no process writes to it"
    reported = set()
    with path.open("wb", buffering=0) as file:
        # It looks at the file in turn with this.
        while waits not in opened._log.refusal or file.tell() < 10_000:
            file.write(b"x")
            reported.add(opened._log.refusal)
            await asyncio.sleep(0)
    assert not any("opened:" in refusal or "being opened" in refusal for refusal in reported)


async def test_a_lock_that_is_removed_is_taken_again(opened, tmp_path):
    await put(opened, SPACE, b"value")
    (tmp_path / "index.db.lock").unlink()
    await answers(opened, lambda: opened.forgotten)
    with pytest.raises(BlockingIOError, match="another process has opened the file"):
        await SqliteBackend(tmp_path / "index.db").start(lambda *_: None)
    await put(opened, SPACE, b"another", before=b"value")


async def test_while_another_process_has_the_lock_it_answers_nothing(opened, tmp_path):
    await put(opened, SPACE, b"value")
    log = log_of(tmp_path / "index.db")
    before = log.stat().st_ino
    with (tmp_path / "taken").open("wb") as lock, contextlib.closing(sqlite3.connect(tmp_path / "index.db")) as others:
        others.execute("SELECT count(*) FROM record")
        fcntl.flock(lock, fcntl.LOCK_EX)
        (tmp_path / "taken").rename(tmp_path / "index.db.lock")
        await refused(opened, "can't be opened: .*another process has opened the file")
        with pytest.raises(IndexUnavailable, match="another process has opened the file"):
            await put(opened, SPACE, b"another", before=b"value")
        assert log.stat().st_ino == before, "the other process writes to it"
    await answers(opened)
    await put(opened, SPACE, b"another", before=b"value")


async def test_who_closes_it_while_other_files_are_opened_leaves_nothing_open(opened, tmp_path):
    path = tmp_path / "index.db"
    path.rename(tmp_path / "elsewhere.db")
    path.write_bytes(b"no database" * 1000)
    await refused(opened, "can't be opened")
    await opened.close()
    (tmp_path / "elsewhere.db").rename(path)
    assert await stored(path) == 0


@pytest.fixture
async def opened(tmp_path, monkeypatch):
    """A store whose files are looked at all the time."""
    monkeypatch.setattr(sqlite_log, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(sqlite_module, "LOOK_SECONDS", 0.05)
    backend = SqliteBackend(tmp_path / "index.db")
    backend.forgotten = []
    await backend.start(lambda *changed: backend.forgotten.append(changed))
    yield backend
    await backend.close()


async def refused(backend, reported):
    """Wait until the store says what is wrong with its files."""
    await asyncio.to_thread(await_that, lambda: re.search(reported, backend._log.refusal), "it has looked at the files")


async def answers(backend, has_changed=lambda: True):
    """Wait until the store answers."""
    await asyncio.to_thread(await_that, lambda: has_changed() and not backend._log.refusal, "it answers")


async def test_one_that_was_not_started_is_closed(tmp_path):
    await SqliteBackend(tmp_path / "index.db").close()
    assert not list(tmp_path.iterdir())


async def test_by_another_name_it_is_the_same_file(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "index.db")
    backend = SqliteBackend(tmp_path / "index.db")
    await backend.start(lambda *_: None)
    with pytest.raises(BlockingIOError):
        await SqliteBackend(tmp_path / "link.db").start(lambda *_: None)
    await backend.close()


async def put(backend, space, value, *, before=None, records=1):
    await backend.commit(Commit([Change(Address(space, bytes([n])), before, value) for n in range(records)]))


@contextlib.contextmanager
def file_size_bound_to(size):
    """As a disk that takes no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_no_other_user_may_read_the_files_of_the_index(tmp_path):
    before = os.umask(0o022)
    try:
        backend = SqliteBackend(tmp_path / "index.db")
        await backend.start(lambda *_: None)
        try:
            await backend.commit(Commit([Change(Address(SPACE, b"key"), None, b"value")]))
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        finally:
            await backend.close()
    finally:
        os.umask(before)
    assert set(modes) >= {"index.db", "index.db-wal", "index.db.lock"}
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("may_change", [True, False])
async def test_files_of_an_earlier_release_are_made_private(tmp_path, monkeypatch, caplog, may_change):
    path = tmp_path / "index.db"
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    assert not await backend.keep_reserve()
    await backend.close()
    files = [path, tmp_path / "index.db.lock", tmp_path / "index.db-reserve"]
    for each in files:
        each.chmod(0o644)
    if not may_change:

        def refuse(*_):
            raise PermissionError

        # Who owns no file may not change its mode, and root, who runs tests, may all.
        monkeypatch.setattr(type(path), "chmod", refuse)
    await backend.start(lambda *_: None)
    modes = {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    await backend.close()
    assert (modes == {0o600}) == may_change
    reported = [record.getMessage() for record in caplog.records]
    assert len(reported) == (0 if may_change else 1), reported
    if not may_change:
        assert "other users can access index.db, " in reported[0]

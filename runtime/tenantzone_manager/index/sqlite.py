"""The embedded store: one SQLite file in WAL mode, of one process.

Statements run on the event loop's own thread: they find their pages in memory, take less time than handing them to a
thread would, and need no lock. What waits for the disk does not run there: writes go to the log without a sync, and
the log is synced and copied into the file by a thread (`PRAGMA wal_checkpoint`), all but the rest of a large one. The
file is synced by the thread, too: SQLite does that only where a round comes to the log's end. A process that is killed
loses nothing; a machine that loses power may lose the last seconds, and never finds half a commit.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec

from tenantzone_manager.core.books import RankChange
from tenantzone_manager.core.quota import Account, charged, with_terms
from tenantzone_manager.index.backend import Change, Commit, Conflict, IndexBackend, IndexUnavailable, Listener

_log = logging.getLogger(__name__)

CHECKPOINT_SECONDS: Final = 5.0
LOG_BYTES: Final = 64 * 2**20
"""Of the log beside the file, from which on it is begun anew."""
_ROUNDS: Final = 3
"""In a thread, before the rest of a large log is copied."""
_PARAMETERS: Final = 500
"""In one statement; SQLite before 3.32 takes no more than 999."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS name (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS record
    (space INTEGER, key BLOB, value BLOB NOT NULL, PRIMARY KEY (space, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rank
    (rank INTEGER, score REAL, member BLOB, PRIMARY KEY (rank, score, member)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


class SqliteBackend(IndexBackend):
    """A file of this machine.

    Args:
        path: of the file; it is made if it is not there.
        cache_bytes: of memory for the file's pages.
    """

    is_shared = False

    def __init__(self, path: Path, cache_bytes: int = 256 * 2**20) -> None:
        self._path = path
        self._cache_bytes = cache_bytes
        self._names: dict[str, int] = {}
        self._problem = ""
        """With the log; empty: there is none."""
        self._lock: IO[bytes]
        self._file: int
        """Open to be synced. It is closed last: with any of a process' descriptors of a file its locks go."""
        self._database: sqlite3.Connection
        self._checkpoints: asyncio.Task[None]

    async def start(self, listener: Listener) -> None:
        """Open the file. Nobody else changes it, so the listener hears nothing.

        Raises:
            BlockingIOError: another process has it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = self._path.with_name(f"{self._path.name}.lock").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._database = self._connect()
        self._file = os.open(self._path, os.O_RDWR)
        self._database.executescript(_SCHEMA)
        self._names = dict(self._database.execute("SELECT name, id FROM name"))
        self._checkpoints = asyncio.create_task(self._checkpoint_always())

    async def close(self) -> None:
        self._checkpoints.cancel()
        await asyncio.gather(self._checkpoints, return_exceptions=True)
        self._database.close()
        os.close(self._file)
        self._lock.close()

    async def get(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._get(self._id(space), keys)
        return [found.get(key) for key in keys]

    async def commit(self, commit: Commit) -> None:
        with self._transaction():
            self._check(commit.changes)
            self._charge(commit)
            self._write(commit.changes)
            self._rank(commit.ranks)

    async def scan(self, space: str, cursor: bytes, count: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
        found = self._after(self._id(space), cursor, ">", count)
        return found, found[-1][0] if len(found) == count else b""

    async def random_sample(self, space: str, count: int) -> list[tuple[bytes, bytes]]:
        # Keys are hashes, so what follows a point by chance in their order is anyone of them by chance.
        number = self._id(space)
        chosen: dict[bytes, bytes] = {}
        for _ in range(2 * count):
            start = secrets.token_bytes(16)
            found = self._after(number, start, ">=", 1) or self._after(number, b"", ">=", 1)
            chosen.update(found)
            if not found or len(chosen) == count:
                break
        return list(chosen.items())

    async def count(self, space: str) -> int:
        (number,) = self._database.execute("SELECT count(*) FROM record WHERE space = ?", (self._id(space),)).fetchone()
        return int(number)

    async def lowest(self, rank: str, count: int, until: float) -> list[tuple[bytes, float]]:
        statement = "SELECT member, score FROM rank WHERE rank = ? AND score <= ? ORDER BY score, member LIMIT ?"
        return self._database.execute(statement, (self._id(rank), until, count)).fetchall()

    async def accounts(self, names: Sequence[str]) -> dict[str, Account]:
        statement = f"SELECT name, value FROM account WHERE name IN ({_marks(names)})"
        return {name: _ACCOUNT.decode(value) for name, value in self._database.execute(statement, tuple(names))}

    async def lead(self, name: str, seconds: float) -> bool:
        return True

    async def size(self) -> int:
        return sum(path.stat().st_size for path in self._path.parent.glob(f"{self._path.name}*"))

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=256)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0", "temp_store = MEMORY"):
            database.execute(f"PRAGMA {pragma}")
        database.execute(f"PRAGMA cache_size = -{self._cache_bytes // 1024}")
        database.execute(f"PRAGMA mmap_size = {2**40}")
        return database

    async def _checkpoint_always(self) -> None:
        database = self._connect()
        thread = ThreadPoolExecutor(1)
        try:
            while True:
                await asyncio.sleep(CHECKPOINT_SECONDS)
                try:
                    self._tell(await self._checkpoint(database, thread))
                except (sqlite3.Error, OSError) as error:
                    self._tell(f"can't be copied into it now: {error}")
        finally:
            # It copies on though nobody waits for it any more, and to close the connection under it ends the process.
            thread.shutdown()
            database.close()

    async def _checkpoint(self, database: sqlite3.Connection, thread: Executor) -> str:
        """Copy the log; returns what keeps it from being begun anew."""
        loop = asyncio.get_running_loop()
        for _ in range(_ROUNDS):
            if await loop.run_in_executor(thread, _copy_and_sync, database, self._file) <= LOG_BYTES:
                return ""
        # Beside steady writes no round comes to the log's end, and it would grow for ever. Each leaves less to do;
        # while the rest is done nobody writes, and the next write begins the log anew.
        log = _copy_log(self._database)
        return "" if log.is_copied else "can't be begun anew while another process reads the file"

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("%s: its log %s", self._path, problem)
        self._problem = problem

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                # Names that this transaction gave numbers have none, and others get these.
                self._names.clear()
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                self._names.update(self._database.execute("SELECT name, id FROM name"))
                raise
        except sqlite3.OperationalError as error:
            raise IndexUnavailable(f"{self._path}: {error}") from error

    def _id(self, name: str) -> int:
        """A number for a name: it stands in each record in place of the name."""
        number = self._names.get(name)
        if number is None:
            self._database.execute("INSERT OR IGNORE INTO name (name) VALUES (?)", (name,))
            (number,) = self._database.execute("SELECT id FROM name WHERE name = ?", (name,)).fetchone()
            self._names[name] = number
        return number

    def _get(self, number: int, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for begin in range(0, len(keys), _PARAMETERS):
            some = keys[begin : begin + _PARAMETERS]
            statement = f"SELECT key, value FROM record WHERE space = ? AND key IN ({_marks(some)})"
            found.update(self._database.execute(statement, (number, *some)))
        return found

    def _after(self, number: int, key: bytes, beyond: str, count: int) -> list[tuple[bytes, bytes]]:
        statement = f"SELECT key, value FROM record WHERE space = ? AND key {beyond} ? ORDER BY key LIMIT ?"
        return self._database.execute(statement, (number, key, count)).fetchall()

    def _check(self, changes: Sequence[Change]) -> None:
        for space in {change.address.space for change in changes}:
            here = [change for change in changes if change.address.space == space]
            found = self._get(self._id(space), [change.address.key for change in here])
            if any(found.get(change.address.key) != change.before for change in here):
                raise Conflict

    def _write(self, changes: Sequence[Change]) -> None:
        rows = [(self._id(change.address.space), change.address.key, change.after) for change in changes]
        gone = [(space, key) for space, key, value in rows if value is None]
        kept = [row for row in rows if row[2] is not None]
        self._database.executemany("DELETE FROM record WHERE space = ? AND key = ?", gone)
        self._database.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", kept)

    def _charge(self, commit: Commit) -> None:
        chains = [charge.chain for charge in commit.charges] + [terms.chain for terms in commit.terms]
        names = {name for chain in chains for name in chain}
        if names:
            statement = f"SELECT name, value FROM account WHERE name IN ({_marks(names)})"
            found = {name: _ACCOUNT.decode(value) for name, value in self._database.execute(statement, tuple(names))}
            after = with_terms(found, commit.terms)
            after |= charged({**found, **after}, commit.charges)
            rows = [(name, _ENCODER.encode(account)) for name, account in after.items()]
            self._database.executemany("INSERT OR REPLACE INTO account VALUES (?, ?)", rows)

    def _rank(self, changes: Sequence[RankChange]) -> None:
        rows = [(self._id(change.rank), change.before, change.score, change.member) for change in changes]
        gone = [(number, before, member) for number, before, _, member in rows if before is not None]
        come = [(number, score, member) for number, _, score, member in rows if score is not None]
        self._database.executemany("DELETE FROM rank WHERE rank = ? AND score = ? AND member = ?", gone)
        self._database.executemany("INSERT OR REPLACE INTO rank VALUES (?, ?, ?)", come)


class _Log(NamedTuple):
    bytes: int
    """Of what was written to it since it was begun."""
    is_copied: bool
    """Whether all of that is in the file."""


def _copy_and_sync(database: sqlite3.Connection, file: int) -> int:
    log = _copy_log(database)
    os.fsync(file)
    return log.bytes


def _copy_log(database: sqlite3.Connection) -> _Log:
    """Copy the log into the file, as far as nobody writes to it meanwhile and nobody reads what was there before."""
    (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
    _, pages, copied = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return _Log(int(page_bytes) * int(pages), copied == pages)


def _marks(values: Sequence[object] | set[str]) -> str:
    return ",".join("?" * len(values))


_ENCODER = msgspec.msgpack.Encoder()
_ACCOUNT = msgspec.msgpack.Decoder(Account)

"""The embedded store: one SQLite file in WAL mode, of one process.

Statements run on the event loop's own thread: they find their pages in memory, take less time than handing them to a
thread would, and need no lock. What waits for the disk does not run there: writes go to the log without a sync, and a
thread does the rest (:mod:`tenantzone_manager.index.sqlite_log`). A process that is killed loses nothing; a machine
that loses power may lose the last seconds, and never finds half a commit.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tenantzone_manager.core.books import RankChange
from tenantzone_manager.core.quota import Account, charged, with_terms
from tenantzone_manager.ending import end
from tenantzone_manager.index.backend import (
    Change,
    Commit,
    Conflict,
    IndexBackend,
    IndexFull,
    IndexUnavailable,
    IndexUnusable,
    Listener,
)
from tenantzone_manager.index.reserve import RESERVE_BYTES, Reserve
from tenantzone_manager.index.sqlite_log import SqliteLog

_WAIT_SECONDS: Final = 0.05
"""For another process that writes to the file; the event loop stands still for so long."""
_PARAMETERS: Final = 500
"""In one statement; SQLite before 3.32 takes no more than 999."""
_DISK_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
_DISK_AWAY: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOTCONN})
"""What a disk answers that may do what it should later."""
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
        self._new: list[str] = []
        """Those that got numbers in the transaction that was begun last."""
        self._database: sqlite3.Connection
        self._log: SqliteLog
        self._copying: asyncio.Task[None]
        self._opened: contextlib.ExitStack | None = None
        """What is closed at the end; None: it was not started yet."""
        self._closing: asyncio.Task[None] | None = None
        self._reserve: Reserve
        self._shortage = ""
        """Why commits that take room are refused; empty: they are not."""

    async def start(self, listener: Listener) -> None:
        """Open the file. Nobody else changes it, so the listener hears nothing.

        Raises:
            BlockingIOError: another process has it.
            IndexUnavailable: the disk does not take or give it now.
            IndexUnusable: it is no file of this store's.
            OSError: it can't be opened, or its folder can't be made.
        """
        try:
            await self._open()
        except OSError as error:
            if error.errno not in _DISK_AWAY:
                raise
            raise IndexUnavailable(f"{self._path}: {error.strerror}") from error
        except IndexFull:
            if not self._reserve.is_there:
                raise
            self._use_reserve()
            await self._open()

    async def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # By whatever name it is opened, its lock is the same.
        self._path = self._path.resolve()
        self._reserve = Reserve(self._path.with_name(f"{self._path.name}-reserve"))
        with contextlib.ExitStack() as opened:
            lock_path = self._path.with_name(f"{self._path.name}.lock")
            # Only this user has to read the index. SQLite gives its other files the same mode.
            for path in (lock_path, self._path):
                path.touch(mode=0o600)
            lock = opened.enter_context(lock_path.open("wb"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Closed last: with any of a process' descriptors of a file its locks go.
            file = os.open(self._path, os.O_RDWR)
            opened.callback(os.close, file)
            try:
                self._database = opened.enter_context(contextlib.closing(self._connect()))
                self._database.executescript(_SCHEMA)
                self._names = dict(self._database.execute("SELECT name, id FROM name"))
                self._log = SqliteLog(self._path, file, self._connect)
                opened.callback(self._log.end)
                await self._log.begin()
            except (sqlite3.Error, MemoryError, RuntimeError) as error:
                # The last of them where no thread can be started.
                raise self._unavailable(error) from error
            self._closing = None
            self._copying = asyncio.create_task(self._keep())
            self._opened = opened.pop_all()

    async def _keep(self) -> None:
        """Copy the log; whoever lets go of an open store without closing it keeps its lock by this, too."""
        await self._log.keep()

    async def close(self) -> None:
        # Whoever waits for it may be interrupted, or wait once more; it is done once, and to its end.
        if self._opened is None:
            return
        if self._closing is None:
            self._closing = asyncio.create_task(self._let_go())
        await asyncio.shield(self._closing)

    async def _let_go(self) -> None:
        assert self._opened is not None
        # Before any write is let in again: what is closed in a thread must not be used beside it.
        self._log.refusal = "it is closed"
        await end([self._copying])
        # SQLite copies its log once more.
        await asyncio.to_thread(self._opened.close)

    async def get(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._asked():
            number = self._known(space)
            found = self._get(number, keys)
            return [found.get(key) for key in keys]

    async def commit(self, commit: Commit) -> None:
        await self._log.may_write()
        if commit.takes_room and self._shortage:
            raise IndexFull(self._shortage)
        try:
            self._commit(commit)
        except IndexFull:
            self._shortage = self._shortage or self._no_room
            if commit.takes_room or not self._reserve.is_there:
                raise
            self._use_reserve()
            self._commit(commit)

    def _commit(self, commit: Commit) -> None:
        self._log.written += 1 + len(commit.changes) + len(commit.ranks)
        with self._transaction():
            self._check(commit.changes)
            self._charge(commit)
            self._write(commit.changes)
            self._rank(commit.ranks)

    async def keep_reserve(self) -> str:
        is_refused = bool(self._shortage)
        try:
            has_room = await asyncio.to_thread(self._reserve.restore, is_refused=is_refused)
        except OSError as error:
            raise self._unavailable(error) from error
        self._shortage = "" if has_room else self._no_room
        return self._shortage

    @property
    def _no_room(self) -> str:
        needed = RESERVE_BYTES // 2**20 + 1
        return f"the index {self._path} has no room on its disk; free {needed} MiB there, or give it a larger one"

    def _use_reserve(self) -> None:
        self._reserve.give_up()
        self._shortage = self._no_room

    async def scan(self, space: str, cursor: bytes, count: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
        with self._asked():
            number = self._known(space)
            found = self._after(number, cursor, ">", count)
            return found, found[-1][0] if len(found) == count else b""

    async def random_sample(self, space: str, count: int) -> list[tuple[bytes, bytes]]:
        # Keys are hashes, so what follows a point by chance in their order is anyone of them by chance.
        chosen: dict[bytes, bytes] = {}
        with self._asked():
            number = self._known(space)
            for _ in range(2 * count):
                start = secrets.token_bytes(16)
                found = self._after(number, start, ">=", 1) or self._after(number, b"", ">=", 1)
                chosen.update(found)
                if not found or len(chosen) == count:
                    break
        return list(chosen.items())

    async def count(self, space: str) -> int:
        statement = "SELECT count(*) FROM record WHERE space = ?"
        with self._asked():
            (number,) = self._database.execute(statement, (self._known(space),)).fetchone()
            return int(number)

    async def lowest(
        self, rank: str, count: int, until: float, above: float = float("-inf")
    ) -> list[tuple[bytes, float]]:
        within = "rank = ? AND score > ? AND score <= ?"
        statement = f"SELECT member, score FROM rank WHERE {within} ORDER BY score, member LIMIT ?"
        with self._asked():
            return self._database.execute(statement, (self._known(rank), above, until, count)).fetchall()

    async def accounts(self, names: Sequence[str]) -> dict[str, Account]:
        with self._asked():
            return self._accounts(names)

    async def lead(self, name: str, seconds: float) -> bool:
        return True

    async def size(self) -> int:
        return sum(path.stat().st_size for path in self._path.parent.glob(f"{self._path.name}*"))

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._path, _WAIT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0", "temp_store = MEMORY"):
            database.execute(f"PRAGMA {pragma}")
        database.execute(f"PRAGMA cache_size = -{self._cache_bytes // 1024}")
        database.execute(f"PRAGMA mmap_size = {2**40}")
        return database

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Whatever SQLite fails at is the store's not answering."""
        try:
            if self._log.refusal:
                raise IndexUnavailable(f"{self._path}: {self._log.refusal}")
            # Of a transaction that could not be rolled back, for want of memory.
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            yield
        except (sqlite3.Error, MemoryError, msgspec.MsgspecError) as error:
            # The last of them where an account is no account.
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> IndexUnavailable:
        code = getattr(error, "sqlite_errorcode", None)
        kind = IndexFull if code in _DISK_FULL else IndexUnavailable
        kind = IndexUnusable if code == sqlite3.SQLITE_NOTADB else kind
        return kind(f"{self._path}: {str(error) or type(error).__name__}")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._asked():
            self._new.clear()
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                # Names that this transaction gave numbers may have none, and others get these.
                for name in self._new:
                    self._names.pop(name, None)
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _known(self, name: str) -> int | None:
        """The number of a name, which stands in each record in its place; None: nothing was written under it."""
        number = self._names.get(name)
        if number is None:
            row = self._database.execute("SELECT id FROM name WHERE name = ?", (name,)).fetchone()
            if row is None:
                return None
            self._names[name] = number = int(row[0])
        return number

    def _id(self, name: str) -> int:
        """The number of a name, in a transaction that gives it one if it has none."""
        number = self._known(name)
        if number is None:
            self._new.append(name)
            self._database.execute("INSERT INTO name (name) VALUES (?)", (name,))
            number = self._known(name)
            assert number is not None
        return number

    def _get(self, number: int | None, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for begin in range(0, len(keys), _PARAMETERS):
            some = keys[begin : begin + _PARAMETERS]
            statement = f"SELECT key, value FROM record WHERE space = ? AND key IN ({_marks(some)})"
            found.update(self._database.execute(statement, (number, *some)))
        return found

    def _after(self, number: int | None, key: bytes, beyond: str, count: int) -> list[tuple[bytes, bytes]]:
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

    def _accounts(self, names: Collection[str]) -> dict[str, Account]:
        statement = f"SELECT name, value FROM account WHERE name IN ({_marks(names)})"
        return {name: _ACCOUNT.decode(value) for name, value in self._database.execute(statement, tuple(names))}

    def _charge(self, commit: Commit) -> None:
        chains = [charge.chain for charge in commit.charges] + [terms.chain for terms in commit.terms]
        names = {name for chain in chains for name in chain}
        if names:
            found = self._accounts(names)
            after = with_terms(found, commit.terms)
            after |= charged({**found, **after}, commit.charges)
            rows = [(name, _ENCODER.encode(account)) for name, account in after.items()]
            self._database.executemany("INSERT OR REPLACE INTO account VALUES (?, ?)", rows)

    def _rank(self, changes: Sequence[RankChange]) -> None:
        rows = [(self._id(change.rank), change.before, change.score, change.member) for change in changes]
        gone = [(number, before, member) for number, before, _, member in rows if before is not None]
        unknown = [(number, member) for number, before, score, member in rows if before is None and score is None]
        come = [(number, score, member) for number, _, score, member in rows if score is not None]
        self._database.executemany("DELETE FROM rank WHERE rank = ? AND score = ? AND member = ?", gone)
        self._database.executemany("DELETE FROM rank WHERE rank = ? AND member = ?", unknown)
        self._database.executemany("INSERT OR REPLACE INTO rank VALUES (?, ?, ?)", come)


def _marks(values: Collection[object]) -> str:
    return ",".join("?" * len(values))


_ENCODER = msgspec.msgpack.Encoder()
_ACCOUNT = msgspec.msgpack.Decoder(Account)

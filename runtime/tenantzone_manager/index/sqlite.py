"""The embedded store: one SQLite file in WAL mode, used by one process.

Statements run on the thread of the event loop, so they need no lock. They take less time than a switch to another
thread, because the pages are in memory. The event loop never waits for the disk, because it writes to the WAL without a
sync, and another thread (:mod:`tenantzone_manager.index.sqlite_log`) syncs and checkpoints the WAL. A killed process
loses nothing. If the machine loses power, the commits of the last seconds may be lost, but each commit is atomic.

If the opened files are replaced, for example by a restored backup or an empty file, the store opens the new files.
"""

import asyncio
import contextlib
import logging
import secrets
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tenantzone_manager.core.books import RankChange
from tenantzone_manager.core.quota import Account, charged, with_terms
from tenantzone_manager.ending import end, to_its_end
from tenantzone_manager.index.backend import (
    Change,
    Commit,
    Conflict,
    IndexBackend,
    IndexFull,
    IndexUnavailable,
    Listener,
)
from tenantzone_manager.index.reserve import RESERVE_BYTES, Reserve
from tenantzone_manager.index.sqlite_files import LOOK_SECONDS, InPlace, sibling
from tenantzone_manager.index.sqlite_log import REFUSALS, SqliteLog
from tenantzone_manager.index.sqlite_opening import open_store, unavailable

_log = logging.getLogger(__name__)

_PARAMETERS: Final = 500
"""Maximum number of parameters in one statement. SQLite before 3.32 accepts at most 999."""
_CLOSED: Final = "the index is closed"


class SqliteBackend(IndexBackend):
    """A store in a local SQLite file.

    Args:
        path: path of the file, which is created if it does not exist.
        cache_bytes: size of SQLite's page cache in bytes.
    """

    is_shared = False

    def __init__(self, path: Path, cache_bytes: int = 256 * 2**20) -> None:
        self._path = path
        self._cache_bytes = cache_bytes
        self._names: dict[str, int] = {}
        self._new: list[str] = []
        """Names to which the current or last transaction assigned numbers."""
        self._database: sqlite3.Connection
        self._log: SqliteLog
        self._keeping: asyncio.Task[None]
        self._opened: contextlib.ExitStack | None = None
        """Closes the opened store; None before the first start."""
        self._closing: asyncio.Task[None] | None = None
        self._reserve: Reserve
        self._listener: Listener = lambda _space, _keys: None
        self._shortage = ""
        """Reason why commits that need room are refused; empty if they are accepted."""

    async def start(self, listener: Listener) -> None:
        """Open the file. The listener is called only after another file replaces it, because no other process writes.

        Raises:
            BlockingIOError: another process has opened the file.
            IndexUnavailable: the disk can't be read or written now.
            IndexUnusable: the file is not an SQLite database.
            OSError: the file can't be opened, or its folder can't be created.
        """
        self._listener = listener
        await self._open(may_create=True)
        self._closing = None
        self._keeping = asyncio.create_task(self._keep())

    async def _open(self, *, may_create: bool) -> None:
        # The path of the lock file must be the same even if the store is opened through a symbolic link.
        self._path = self._path.resolve()
        self._reserve = Reserve(sibling(self._path, "-reserve"))
        try:
            opened = await open_store(self._path, self._cache_bytes, may_create=may_create)
        except IndexFull:
            if not self._reserve.is_there:
                raise
            self._use_reserve()
            opened = await open_store(self._path, self._cache_bytes, may_create=may_create)
        self._database, self._log, self._opened = opened.database, opened.log, opened.closing
        self._names = {}

    async def _keep(self) -> None:
        """Checkpoint the WAL regularly, and reopen the store when other files have replaced its files.

        The task references the store, so the store stays locked even if its owner drops the store without closing it.
        """
        while True:
            await self._log.keep()
            await self._open_others()

    async def _open_others(self) -> None:
        """Close the opened files, and open the files that replaced them."""
        await self._log.copy_all()
        await to_its_end(asyncio.to_thread(self._close_opened))
        is_left = True
        while is_left:
            try:
                found = self._log.files.look()
                if found in (InPlace.NONE, InPlace.OTHERS):
                    self._log.refusal = REFUSALS[found]
                else:
                    self._log.files.remove_left_log()
                    await self._open(may_create=False)
                    is_left = False
            except (OSError, IndexUnavailable) as error:
                refusal = f"the file of the index was replaced, and the new file can't be opened: {error}"
                if refusal != self._log.refusal:
                    _log.warning("%s", refusal)
                self._log.refusal = refusal
            if is_left:
                await asyncio.sleep(LOOK_SECONDS)
        _log.info("%s: the file was replaced, and the new file is open", self._path)
        self._listener("", ())

    def _close_opened(self) -> None:
        opened, self._opened = self._opened, contextlib.ExitStack()
        assert opened is not None
        opened.close()

    async def close(self) -> None:
        # Shield the task, because the caller may be cancelled. Start it only once, because close() may be called again.
        if self._opened is None:
            return
        if self._closing is None:
            self._closing = asyncio.create_task(self._let_go())
        await asyncio.shield(self._closing)

    async def _let_go(self) -> None:
        # From here on, all calls are refused, because connections must not be used while a thread closes them.
        self._log.refusal = _CLOSED
        await end([self._keeping])
        # Set the refusal again, because the ended task may have opened new files, and thus created a new log object.
        self._log.refusal = _CLOSED
        # Close in a thread, because SQLite checkpoints the WAL when it closes the last connection.
        await asyncio.to_thread(self._close_opened)

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
            raise unavailable(self._path, error) from error
        self._shortage = "" if has_room else self._no_room
        return self._shortage

    @property
    def _no_room(self) -> str:
        needed = RESERVE_BYTES // 2**20 + 1
        return f"the index {self._path} has no room on its disk; free {needed} MiB there, or enlarge the disk"

    def _use_reserve(self) -> None:
        self._reserve.give_up()
        self._shortage = self._no_room

    async def scan(self, space: str, cursor: bytes, count: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
        with self._asked():
            number = self._known(space)
            found = self._after(number, cursor, ">", count)
            return found, found[-1][0] if len(found) == count else b""

    async def random_sample(self, space: str, count: int) -> list[tuple[bytes, bytes]]:
        # Keys are hashes, so the first key after a random value is a random key.
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
            return int(self._database.execute(statement, (self._known(space),)).fetchone()[0])

    async def spaces(self, kind: str) -> list[str]:
        with self._asked():
            found = self._database.execute("SELECT name FROM name WHERE name GLOB ?", (f"{kind}/*",))
            return [name for (name,) in found]

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

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Run the ``with`` block, and report errors of SQLite as ``IndexUnavailable``."""
        try:
            if self._log.refusal:
                raise IndexUnavailable(f"{self._path}: {self._log.refusal}")
            # A transaction is still open if the rollback failed because there was not enough memory.
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            yield
        except (sqlite3.Error, MemoryError, msgspec.MsgspecError) as error:
            # MsgspecError means that an account can't be decoded.
            raise unavailable(self._path, error) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._asked():
            self._new.clear()
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                # The rollback also removes the numbers of new names, and other names may get these numbers.
                for name in self._new:
                    self._names.pop(name, None)
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _known(self, name: str) -> int | None:
        """Returns the number that stands for a name in the tables, or None if nothing was written under the name."""
        number = self._names.get(name)
        if number is None:
            row = self._database.execute("SELECT id FROM name WHERE name = ?", (name,)).fetchone()
            if row is None:
                return None
            self._names[name] = number = int(row[0])
        return number

    def _id(self, name: str) -> int:
        """Returns the number of a name. If the name has no number yet, the current transaction assigns one."""
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

"""Opens the embedded store: locks the file, opens connections and creates tables."""

import contextlib
import errno
import fcntl
import os
import sqlite3
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tenantzone_manager.index.backend import IndexFull, IndexUnavailable, IndexUnusable
from tenantzone_manager.index.sqlite_files import LOCK, make_private, sibling
from tenantzone_manager.index.sqlite_log import SqliteLog

_WAIT_SECONDS: Final = 0.05
"""Seconds to wait for another process that is writing to the file. This wait blocks the event loop."""
_DISK_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
_DISK_AWAY: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOTCONN})
"""Values of ``errno`` for disk errors that may be temporary."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS name (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS record
    (space INTEGER, key BLOB, value BLOB NOT NULL, PRIMARY KEY (space, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rank
    (rank INTEGER, score REAL, member BLOB, PRIMARY KEY (rank, score, member)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that this process has opened and locked."""

    database: sqlite3.Connection
    log: SqliteLog
    closing: contextlib.ExitStack
    """Closes the store. SQLite then checkpoints the WAL once more, which may block."""


async def open_store(path: Path, cache_bytes: int, *, may_create: bool) -> OpenStore:
    """Open the store's file.

    Args:
        path: path of the file without symbolic links, so that all processes use the same lock file.
        cache_bytes: size of SQLite's page cache in bytes.
        may_create: whether to create a missing file.

    Raises:
        BlockingIOError: another process has opened the file.
        IndexFull: the disk has no room.
        IndexUnavailable: the disk can't be read or written now.
        IndexUnusable: the file is not an SQLite database.
        OSError: the file can't be opened, or its folder can't be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # No other user needs to read the index.
        make_private(path, may_create=may_create)
        return await _opened(path, cache_bytes)
    except OSError as error:
        if error.errno not in _DISK_AWAY:
            raise
        raise IndexUnavailable(f"{path}: {error.strerror}") from error


async def _opened(path: Path, cache_bytes: int) -> OpenStore:
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(sibling(path, LOCK).open("wb"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(error.errno, "another process has opened the file") from error
        # Close this descriptor after the connections, because closing any descriptor of a file releases all POSIX locks
        # of the process on that file, including the locks of SQLite.
        file = os.open(path, os.O_RDWR)
        stack.callback(os.close, file)
        connect = partial(_connect, path, cache_bytes)
        try:
            database = stack.enter_context(contextlib.closing(connect()))
            database.executescript(_SCHEMA)
            log = SqliteLog(path, file, connect)
            stack.callback(log.end)
            await log.begin()
        except (sqlite3.Error, MemoryError, RuntimeError) as error:
            # RuntimeError means that no thread can be started.
            raise unavailable(path, error) from error
        return OpenStore(database, log, stack.pop_all())


def unavailable(path: Path, error: Exception) -> IndexUnavailable:
    """Returns the exception that reports an SQLite error to callers of the store."""
    code = getattr(error, "sqlite_errorcode", None)
    kind = IndexFull if code in _DISK_FULL else IndexUnavailable
    kind = IndexUnusable if code == sqlite3.SQLITE_NOTADB else kind
    return kind(f"{path}: {str(error) or type(error).__name__}")


def _connect(path: Path, cache_bytes: int) -> sqlite3.Connection:
    database = sqlite3.connect(
        path, _WAIT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0", "temp_store = MEMORY"):
        database.execute(f"PRAGMA {pragma}")
    database.execute(f"PRAGMA cache_size = -{cache_bytes // 1024}")
    database.execute(f"PRAGMA mmap_size = {2**40}")
    return database

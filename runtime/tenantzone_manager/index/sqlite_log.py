"""The log beside the embedded store's file, which is copied into it by a thread.

Nothing of that runs on the event loop: a disk may take seconds for a sync, and SQLite syncs the log where it copies,
the file where all is copied, and the log again where it is begun anew. So the thread does that last step, too, by a
write of its own; meanwhile nobody else writes, and reads go on.
"""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from tenantzone_manager.index.sqlite_files import LOOK_SECONDS, InPlace, SqliteFiles

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

CHECKPOINT_SECONDS: Final = 5.0
FEW_RECORDS: Final = 10_000
"""That are copied at once, while nobody writes: 40 MB of pages at most."""


_REFUSALS: Final = {
    InPlace.SAME: "",
    InPlace.NONE: "the file is not there; put it back, or another index, or an empty file to begin a new index",
    InPlace.OTHERS: "another file is in its place or in its log's; it is opened once nobody writes to it any more",
    InPlace.OTHERS_AT_REST: "another file is in its place or in its log's; it is being opened",
}


class SqliteLog:
    """Copies a store's log into its file, again and again.

    Args:
        path: of the file, which is there.
        file: it, open to be synced.
        connect: opens a connection of the store.

    Raises:
        sqlite3.Error: there is none.
    """

    def __init__(self, path: Path, file: int, connect: Callable[[], sqlite3.Connection]) -> None:
        self.written = 0
        """Records since the log was last looked at."""
        self.refusal = ""
        """Of whatever the store is asked for; empty: it answers."""
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._path = path
        self._problem = ""
        self._file = file
        self.files = SqliteFiles(path)
        self._thread = ThreadPoolExecutor(1)
        # Opened once: later there may be another file at the path, or none, and SQLite would begin a new log for it.
        self._database = connect()
        self._reader = connect()
        """While it reads, no write begins the log anew."""

    async def begin(self) -> None:
        """Begin the log, so that no write does, and note which files there are."""
        self._tell(await self._in_thread(self._begin_anew))
        self.files.note()

    async def may_write(self) -> None:
        """Wait until writes are let in; what is written before the event loop has another turn is."""
        while not self._may_write.is_set():
            await self._may_write.wait()

    async def keep(self) -> None:
        """Copy what is written, every few seconds, until this is cancelled or other files are in place of the store's.

        Nothing is answered or copied while the files are away.
        """
        due = time.monotonic() + CHECKPOINT_SECONDS
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, CHECKPOINT_SECONDS))
            try:
                found = self.files.look()
                self.refusal = _REFUSALS[found]
                if found is InPlace.OTHERS_AT_REST:
                    return
                if self.refusal or time.monotonic() < due:
                    continue
                due = time.monotonic() + CHECKPOINT_SECONDS
                self._tell(await self._copy())
            except Exception as error:
                # Whatever it is, a log that is copied no more fills the disk.
                self._tell(f"can't be copied into it now: {str(error) or type(error).__name__}")

    async def copy_all(self) -> None:
        """Copy all of the log into the file that was opened, wherever it was moved to."""
        try:
            self._tell(await self._in_thread(self._copy_left))
        except sqlite3.Error as error:
            self._tell(f"was not copied into it before other files were opened: {error}")

    def end(self) -> None:
        """Wait for the thread, which copies on though nobody waits for it, and close its connections."""
        self._thread.shutdown()
        self._database.close()
        self._reader.close()

    async def _copy(self) -> str:
        """Copy the log; returns what keeps it from being begun anew."""
        if not self.written and not self._problem:
            return ""
        if self.written > FEW_RECORDS or self._problem:
            self.written = 0
            await self._in_thread(self._copy_most)
        self._may_write.clear()
        try:
            self.written = 0
            return await self._in_thread(self._begin_anew)
        finally:
            self._may_write.set()

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _copy_most(self) -> None:
        """Copy what there is, beside those who write."""
        self._let_anew()
        self._reader.execute("BEGIN")
        self._reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        copy_log(self._database)
        os.fsync(self._file)

    def _copy_left(self) -> str:
        """Copy what is left, while nobody writes."""
        self._let_anew()
        return copy_log(self._database)

    def _begin_anew(self) -> str:
        """Copy what is left, while nobody writes, and begin the log anew."""
        problem = self._copy_left()
        if not problem:
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            self._database.execute(f"PRAGMA user_version = {(version + 1) % 2**31}")
        return problem

    def _let_anew(self) -> None:
        if self._reader.in_transaction:
            self._reader.execute("COMMIT")

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("%s: its log %s", self._path, problem)
        self._problem = problem


def copy_log(database: sqlite3.Connection) -> str:
    """Copy the log into the file, as far as nobody writes to it meanwhile and nobody reads what was there before.

    Returns:
        why not all of it is copied; empty: it is.
    """
    is_busy, pages, copied = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if is_busy or pages < 0:
        return "can't be copied into it while another process does"
    return "" if copied == pages else "can't be begun anew while another process reads the file"

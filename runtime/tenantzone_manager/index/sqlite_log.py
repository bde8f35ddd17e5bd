"""The log of the embedded store, which a thread copies into the store's file.

The event loop does none of this: a sync may take seconds. SQLite syncs the log before it copies, the file when all is
copied, and the log again when it restarts it. So the thread also does that last step, by its own write; meanwhile other
writes wait, and reads continue.
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
"""The most records that are copied while writes wait: at most 40 MB of pages."""


REFUSALS: Final = {
    InPlace.SAME: "",
    InPlace.NONE: "the file is not there; put it back, or another index, or an empty file to begin a new index",
    InPlace.OTHERS: (
        "another file is in its place, its log's or its lock's; it is opened once no process writes to it any more"
    ),
    InPlace.OTHERS_AT_REST: "another file is in its place, its log's or its lock's; it is being opened",
}


class SqliteLog:
    """Copies a store's log into its file, again and again.

    Args:
        path: path of the existing file.
        file: its file descriptor, for syncs.
        connect: opens a connection to the store.

    Raises:
        sqlite3.Error: a connection can't be opened.
    """

    def __init__(self, path: Path, file: int, connect: Callable[[], sqlite3.Connection]) -> None:
        self.written = 0
        """Records written since the log was last copied."""
        self.refusal = ""
        """Why the store refuses all calls; empty: it answers."""
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
        """While it reads, no write restarts the log."""

    async def begin(self) -> None:
        """Start the log, so that no write does, and note the current files."""
        self._tell(await self._in_thread(self._begin_anew))
        self.files.note()

    async def may_write(self) -> None:
        """Wait until writes are allowed. They stay allowed until the event loop runs another task."""
        while not self._may_write.is_set():
            await self._may_write.wait()

    async def keep(self) -> None:
        """Copy the log every few seconds, until cancelled or until other files replace the store's.

        While the files are missing, the store refuses all calls and nothing is copied.
        """
        due = time.monotonic() + CHECKPOINT_SECONDS
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, CHECKPOINT_SECONDS))
            try:
                found = self.files.look()
                self.refusal = REFUSALS[found]
                if found is InPlace.OTHERS_AT_REST:
                    return
                if self.refusal or time.monotonic() < due:
                    continue
                due = time.monotonic() + CHECKPOINT_SECONDS
                self._tell(await self._copy())
            except Exception as error:
                # Whatever the error, copying must continue: an uncopied log would fill the disk.
                self._tell(f"can't be copied into it now: {str(error) or type(error).__name__}")

    async def copy_all(self) -> None:
        """Copy the whole log into the opened file, wherever it was moved."""
        try:
            self._tell(await self._in_thread(self._copy_left))
        except sqlite3.Error as error:
            self._tell(f"was not copied into it before other files were opened: {error}")

    def end(self) -> None:
        """Wait for the thread, which keeps copying after a cancellation, and close its connections."""
        self._thread.shutdown()
        self._database.close()
        self._reader.close()

    async def _copy(self) -> str:
        """Copy the log; returns why it can't be restarted, or an empty string."""
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
        """Copy the current log while others write."""
        self._let_anew()
        self._reader.execute("BEGIN")
        self._reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        copy_log(self._database)
        os.fsync(self._file)

    def _copy_left(self) -> str:
        """Copy the rest of the log while writes wait."""
        self._let_anew()
        return copy_log(self._database)

    def _begin_anew(self) -> str:
        """Copy the rest of the log while writes wait, and restart the log."""
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
    """Copy the log into the file, except parts that are still written or whose old content is still read.

    Returns:
        Why not all of it was copied; empty: it was.
    """
    is_busy, pages, copied = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if is_busy or pages < 0:
        return "can't be copied into it while another process does"
    return "" if copied == pages else "can't be begun anew while another process reads the file"

"""The write-ahead log (WAL) of the embedded store. A thread checkpoints the WAL into the store's file.

The event loop must not checkpoint, because a sync may take seconds. SQLite syncs the WAL before a checkpoint, the file
after the checkpoint, and the WAL again when the next write restarts the WAL. To keep this last sync off the event loop,
the thread makes the write that restarts the WAL. Other writes wait for this write, but reads continue.
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
"""Maximum number of changed records that are checkpointed while writes wait. Their pages take at most 40 MB."""


REFUSALS: Final = {
    InPlace.SAME: "",
    InPlace.NONE: "the file of the index is missing; restore it, or create an empty file to start a new index",
    InPlace.OTHERS: (
        "the file of the index, its log or its lock was replaced; the new file is opened once no process writes to it"
    ),
    InPlace.OTHERS_AT_REST: "the file of the index, its log or its lock was replaced; the new file is being opened",
}


class SqliteLog:
    """Checkpoints the WAL of a store regularly.

    Args:
        path: path of the store's file, which must exist.
        file: descriptor of the file, for syncs.
        connect: opens a connection to the store.

    Raises:
        sqlite3.Error: a connection can't be opened.
    """

    def __init__(self, path: Path, file: int, connect: Callable[[], sqlite3.Connection]) -> None:
        self.written = 0
        """Number of records written since the last checkpoint."""
        self.refusal = ""
        """Reason why the store refuses all calls; empty if the store answers."""
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._path = path
        self._problem = ""
        self._file = file
        self.files = SqliteFiles(path)
        self._thread = ThreadPoolExecutor(1)
        # Connections are opened only here. Later, the file may have been replaced or removed, and a new connection
        # would begin another WAL.
        self._database = connect()
        self._reader = connect()
        """Connection whose open read transaction keeps writes from restarting the WAL."""

    async def begin(self) -> None:
        """Start the WAL in the thread, so that writes on the event loop need not. Remember the current files."""
        self._tell(await self._in_thread(self._begin_anew))
        self.files.note()

    async def may_write(self) -> None:
        """Wait until writes are allowed. Writes stay allowed at least until the calling task awaits something else."""
        while not self._may_write.is_set():
            await self._may_write.wait()

    async def keep(self) -> None:
        """Checkpoint the WAL every few seconds, until cancelled or until other files have replaced the store's files.

        While the files are missing, the store refuses all calls, and there are no checkpoints.
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
                # Catch every exception, because without checkpoints the WAL would fill the disk.
                self._tell(f"checkpoint failed: {str(error) or type(error).__name__}")

    async def copy_all(self) -> None:
        """Checkpoint the whole WAL into the opened file, even if the file was moved."""
        try:
            self._tell(await self._in_thread(self._copy_left))
        except sqlite3.Error as error:
            self._tell(f"checkpoint failed before other files were opened: {error}")

    def end(self) -> None:
        """Wait until the thread has ended, because a cancellation does not interrupt it. Then close the connections."""
        self._thread.shutdown()
        self._database.close()
        self._reader.close()

    async def _copy(self) -> str:
        """Checkpoint and restart the WAL; returns why the WAL can't be restarted, or an empty string."""
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
        """Checkpoint the WAL as it is now, while writes continue."""
        self._let_anew()
        self._reader.execute("BEGIN")
        self._reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        copy_log(self._database)
        os.fsync(self._file)

    def _copy_left(self) -> str:
        """Checkpoint the rest of the WAL, while writes wait; returns why that failed, or an empty string."""
        self._let_anew()
        return copy_log(self._database)

    def _begin_anew(self) -> str:
        """Checkpoint the rest of the WAL and restart it, while writes wait; returns why that failed, or ``""``."""
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
            _log.warning("%s: WAL %s", self._path, problem)
        self._problem = problem


def copy_log(database: sqlite3.Connection) -> str:
    """Checkpoint as much of the WAL as possible without waiting for readers and writers.

    Returns:
        Why the checkpoint is incomplete; empty if it is complete.
    """
    is_busy, pages, copied = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if is_busy or pages < 0:
        return "checkpoint is incomplete because another process is running one"
    return "" if copied == pages else "can't be restarted while another process reads the file"

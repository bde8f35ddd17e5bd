"""The log beside the embedded store's file, which is copied into it by a thread.

Nothing of that runs on the event loop: a disk may take seconds for a sync, and SQLite syncs the log where it copies,
the file where all is copied, and the log again where it is begun anew. So the thread does that last step, too, by a
write of its own; meanwhile nobody else writes, and reads go on.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

CHECKPOINT_SECONDS: Final = 5.0
ROUNDS: Final = 3
"""Beside writes, before the rest is copied."""
FEW_RECORDS: Final = 10_000
"""That are copied at once: 40 MB of pages at most."""


class SqliteLog:
    """Copies a store's log into its file, round after round.

    Args:
        path: of the file, which is there.
        connect: opens a connection of the store.
    """

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self.writes = asyncio.Lock()
        """Held by who writes."""
        self.written = 0
        """Records since the log was last looked at."""
        self.lost = ""
        """Why nothing that is written will be there the next time; empty: it will."""
        self._path = path
        self._connect = connect
        self._problem = ""
        self._file = os.open(path, os.O_RDWR)
        self._thread = ThreadPoolExecutor(1)
        self._database: sqlite3.Connection | None = None

    async def keep(self) -> None:
        """Copy what is written, every few seconds, until this is cancelled."""
        try:
            while True:
                await asyncio.sleep(CHECKPOINT_SECONDS)
                try:
                    self._look_at_the_file()
                    self._tell(await self._copy())
                except Exception as error:
                    # Whatever it is, a log that is copied no more fills the disk.
                    self._tell(f"can't be copied into it now: {str(error) or type(error).__name__}")
        finally:
            # It copies on though nobody waits for it any more, and to close the connection under it ends the process.
            self._thread.shutdown()
            if self._database is not None:
                self._database.close()

    def close(self) -> None:
        """Let go of the file, after all connections: with any of a process' descriptors of a file its locks go."""
        os.close(self._file)

    async def _copy(self) -> str:
        """Copy the log; returns what keeps it from being begun anew."""
        if not self.written and not self._problem:
            return ""
        for _ in range(ROUNDS):
            if self.written <= FEW_RECORDS:
                break
            self.written = 0
            await self._in_thread(self._copy_and_sync)
        async with self.writes:
            self.written = 0
            return await self._in_thread(self._begin_anew)

    async def _in_thread(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._own()))

    def _own(self) -> sqlite3.Connection:
        """The thread's connection."""
        if self._database is None:
            self._database = self._connect()
        return self._database

    def _copy_and_sync(self, database: sqlite3.Connection) -> None:
        copy_log(database)
        os.fsync(self._file)

    @staticmethod
    def _begin_anew(database: sqlite3.Connection) -> str:
        problem = copy_log(database)
        if not problem:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            database.execute(f"PRAGMA user_version = {(version + 1) % 2**31}")
        return problem

    def _look_at_the_file(self) -> None:
        own = os.fstat(self._file)
        with contextlib.suppress(FileNotFoundError):
            there = self._path.stat()
            if (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino):
                return
        if not self.lost:
            self.lost = "another file is in its place, or none; start the manager again"
            _log.error("%s: %s", self._path, self.lost)

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

"""The log beside the embedded store's file, which is copied into it by a thread.

Nothing of that runs on the event loop: a disk may take seconds for a sync, and SQLite syncs the log where it copies,
the file where all is copied, and the log again where it is begun anew. So the thread does that last step, too, by a
write of its own; meanwhile nobody else writes, and reads go on.
"""

import asyncio
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
FEW_RECORDS: Final = 10_000
"""That are copied at once, while nobody writes: 40 MB of pages at most."""


_NOT_IN_PLACE: Final = (
    "another file is in its place or in its log's, or none; put them back, or start the manager again"
)


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
        self._files: list[tuple[int, int] | None] = []
        """Which files the store has: what a path leads to may be another one later."""
        self._thread = ThreadPoolExecutor(1)
        # Opened once: later there may be another file at the path, or none, and SQLite would begin a new log for it.
        self._database = connect()
        self._reader = connect()
        """While it reads, no write begins the log anew."""

    async def begin(self) -> None:
        """Begin the log, so that no write does, and note which files there are."""
        self._tell(await self._in_thread(self._begin_anew))
        self._files = self._there()

    async def may_write(self) -> None:
        """Wait until writes are let in; what is written before the event loop has another turn is."""
        while not self._may_write.is_set():
            await self._may_write.wait()

    async def keep(self) -> None:
        """Copy what is written, every few seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            try:
                self._look_at_the_files()
                if self.refusal:
                    continue
                self._tell(await self._copy())
            except Exception as error:
                # Whatever it is, a log that is copied no more fills the disk.
                self._tell(f"can't be copied into it now: {str(error) or type(error).__name__}")

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

    def _begin_anew(self) -> str:
        """Copy what is left, while nobody writes."""
        self._let_anew()
        problem = copy_log(self._database)
        if not problem:
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            self._database.execute(f"PRAGMA user_version = {(version + 1) % 2**31}")
        return problem

    def _let_anew(self) -> None:
        if self._reader.in_transaction:
            self._reader.execute("COMMIT")

    def _look_at_the_files(self) -> None:
        is_in_place = self._there() == self._files
        if not self.refusal and not is_in_place:
            self.refusal = _NOT_IN_PLACE
        elif self.refusal == _NOT_IN_PLACE and is_in_place:
            # They are the files that are open here, and nothing was written meanwhile.
            self.refusal = ""

    def _there(self) -> list[tuple[int, int] | None]:
        return [_identity(self._path.with_name(f"{self._path.name}{end}")) for end in ("", "-wal", "-shm")]

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


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino

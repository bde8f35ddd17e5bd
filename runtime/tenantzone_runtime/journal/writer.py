"""Writes the journal in a separate thread, so that requests never wait for a disk."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tenantzone_runtime.journal.files import JournalFiles
from tenantzone_runtime.journal.record import BEFORE_FIRST, EngineRun, JournalEvent, Link, Started, encode
from tenantzone_runtime.zones.audit.events import Event, Lost

logger = logging.getLogger(__name__)

DEFAULT_MAX_BYTES: Final = 16 * 2**20
DEFAULT_QUEUE_RECORDS: Final = 10_000

_RETRY_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 5.0


class JournalWriter:
    """Appends records to the journal in a folder, until :meth:`close` is called.

    Each record is passed to the operating system immediately, but synced to the disk only when its file is full or the
    engine stops. So a crash of the engine loses no written record, but a crash of the machine may lose the records of
    the last seconds.

    While the folder can't be written, records are queued. When ``queue_records`` records are queued, further records
    are dropped, and one record of the kind ``lost`` reports their number. To avoid this, a caller can keep events until
    :attr:`room` is sufficient.

    Args:
        folder: the journal's folder, which is created if it is missing. Only this engine may write to the folder.
        engine: the engine's run. Its values are written in the first record, which has the kind ``started``.
        max_bytes: the maximum size of a file in bytes. A record that does not fit is written to a new file.
        keep: the number of files to keep, including the newest file; 0 for all files.
        queue_records: the maximum number of queued records.
        clock: the monotonic clock of the events, in seconds. The offset of Unix time is measured once, so that times of
            records never decrease within a run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        engine: EngineRun,
        max_bytes: int = DEFAULT_MAX_BYTES,
        keep: int = 0,
        queue_records: int = DEFAULT_QUEUE_RECORDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._engine = engine.name
        self._max_bytes = max_bytes
        self._keep = keep
        self._limit = queue_records
        self._clock = clock
        self._offset = time.time() - clock()
        self._files: JournalFiles | None = None
        self._head: Link | None = None
        self._refused = False
        self._closing = False
        started = Started(engine.version, engine.capacity_blocks, engine.block_size_tokens)
        self._queue: deque[tuple[float, JournalEvent]] = deque([(clock(), started)])
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="tenantzone-journal", daemon=True)
        self._thread.start()

    @property
    def head(self) -> Link | None:
        """The link of the newest record; None before the first record.

        A copy of the link's hash elsewhere can later prove that the journal still has this record.
        """
        head = self._head
        return None if head == BEFORE_FIRST else head

    @property
    def room(self) -> int:
        """Number of records for which the queue still has room."""
        return max(0, self._limit - len(self._queue))

    def write(self, events: Iterable[Event], at: float, *, patience_seconds: float = 0.0) -> None:
        """Queue events to be written. Never raises an exception.

        Args:
            events: the events, in order.
            at: the events' time on the writer's ``clock``.
            patience_seconds: the maximum total time to wait for room in the queue, in seconds.
        """
        with self._changed:
            give_up = time.monotonic() + patience_seconds
            for event in events:
                if self._waits_for_room(give_up):
                    self._queue.append((at, event))
                else:
                    self._count_lost(at)
            self._changed.notify_all()

    def _waits_for_room(self, give_up: float) -> bool:
        """Returns whether the queue has room for a record.

        If the queue is full, waits until half of it is free, so that the caller need not wait for each record. Waits at
        most until ``give_up``.
        """
        if len(self._queue) >= self._limit and (patience := give_up - time.monotonic()) > 0:
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._queue) <= self._limit // 2, patience)
        return len(self._queue) < self._limit

    def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Write the queued records, and stop. After the timeout, or if the disk fails, queued records are dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_seconds)
        with self._changed:
            waiting = len(self._queue)
        if waiting:
            logger.error("the journal in %s was closed before its last %d records were written", self._folder, waiting)

    def _count_lost(self, at: float) -> None:
        # Append the ``lost`` record even if the queue is full, so that the loss is always recorded.
        last_at, last = self._queue[-1] if self._queue else (at, None)
        if isinstance(last, Lost):
            self._queue[-1] = last_at, replace(last, records=last.records + 1)
        else:
            self._queue.append((at, Lost(1)))

    def _run(self) -> None:
        while (item := self._next()) is not None:
            while not self._try_to_write(*item):
                with self._changed:
                    if self._changed.wait_for(lambda: self._closing, _RETRY_SECONDS):
                        self._queue.appendleft(item)
                        return
        if self._files:
            self._files.close()

    def _next(self) -> tuple[float, JournalEvent] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            item = self._queue.popleft() if self._queue else None
            if len(self._queue) == self._limit // 2:
                self._changed.notify_all()
            return item

    def _try_to_write(self, at: float, event: JournalEvent) -> bool:
        """Write an event's record. Returns False if the files can't be written, so that the caller must retry."""
        try:
            self._append(self._files or self._open(), event, at)
        except OSError as error:
            self._give_up_files(error)
            return False
        except Exception:
            logger.exception("a record of kind %s can't be written, and is lost", event.kind)
            with self._changed:
                self._queue.appendleft((at, Lost(1)))
            return True
        if self._refused:
            logger.warning("the journal in %s can be written again", self._folder)
            self._refused = False
        return True

    def _open(self) -> JournalFiles:
        self._files = JournalFiles(self._folder, max_bytes=self._max_bytes, keep=self._keep)
        end = self._files.end
        # Within a run, continue the chain from this run's last record, even if the files have changed since then.
        self._head = self._head or end.link
        if end.cut_off:
            self._append(self._files, end.cut_off, self._clock())
        return self._files

    def _append(self, files: JournalFiles, event: JournalEvent, at: float) -> None:
        assert self._head is not None, "a journal must be opened before records are appended"
        line, link = encode(event, self._head, engine=self._engine, at=at, offset=self._offset)
        files.append(line)
        self._head = link

    def _give_up_files(self, error: OSError) -> None:
        if not self._refused:
            logger.error("the journal in %s can't be written, so records wait in memory: %s", self._folder, error)
        self._refused = True
        if self._files:
            self._files.close()
            self._files = None

"""The recorder: writes down what is asked for, so that it can be replayed. It is off unless it is given a folder.

What a line says, ``record`` has. Lines are made and written by a thread, and a request waits for none of it: what the
disk does not take is lost, and so is what no line can be made of; the next line says how much. vLLM may have several
processes that serve its API, and pods may share a folder, so each process writes files of its own:
``requests-HOST-PID.jsonl`` and, rotated, ``requests-HOST-PID.jsonl.1`` and so on, the oldest last.
"""

import atexit
import logging
import os
import queue
import socket
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from tenantzone_runtime.door.answers import App, Receive, Scope, Send
from tenantzone_runtime.door.record import Generation, caller_of, line_of, recording_key

_log = logging.getLogger(__name__)

_WAITING: Final = 10_000
"""Requests that have ended and may wait to be written."""
_LEAVE_SECONDS: Final = 5.0
"""For which the end of the process waits for what is not written yet."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, for each prompt of one HTTP request."""

    recorder: "Recorder"
    tenant: str
    caller: str
    key: bytes

    def begin(self, block_tokens: int) -> Generation:
        """The engine is given a prompt now."""
        generation = Generation(self.recorder.now(), self.tenant, self.caller, self.key, block_tokens)
        self.recorder.under_way[generation.arrival] = None
        return generation

    def end(self, generation: Generation) -> None:
        """Nothing more comes of a prompt that was begun."""
        self.recorder.end(generation)


_asker: ContextVar[Asker | None] = ContextVar("tenantzone_asker", default=None)


def current_asker() -> Asker | None:
    """Who asks here; None: nothing is recorded."""
    return _asker.get()


class Recorder:
    """Writes recordings.

    Args:
        folder: made if there is none.
        max_bytes: of a file, before the next one is begun.
        keep: rotated files of this process that stay.

    Raises:
        OSError: the folder can't be made.
    """

    def __init__(self, folder: Path, max_bytes: int, keep: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.under_way: dict[float, None] = {}
        """When each began that has not ended, oldest first; no two began at once."""
        self._path = folder / f"requests-{socket.gethostname()}-{os.getpid()}.jsonl"
        self._files = _Files(self._path, maxBytes=max_bytes, backupCount=keep, encoding="utf-8", delay=True)
        self._ended: queue.Queue[tuple[Generation, float, float] | None] = queue.Queue(_WAITING)
        # Each is counted by one thread.
        self._no_room = self._not_taken = self._told = 0
        self._is_failing = False
        self._latest = 0.0
        self._thread = threading.Thread(target=self._write_all, name="recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def now(self) -> float:
        """Unix time, which only runs forward here, by more than is rounded: the order of arrivals is that of times."""
        self._latest = max(time.time(), self._latest + 2e-6)
        return self._latest

    def end(self, generation: Generation) -> None:
        """Have a line written of a request that has ended."""
        del self.under_way[generation.arrival]
        now = self.now()
        oldest = next(iter(self.under_way), now)
        try:
            self._ended.put_nowait((generation, now - generation.arrival, oldest))
        except queue.Full:
            self._no_room += 1

    def close(self) -> None:
        """Write what has ended, and end."""
        atexit.unregister(self.close)
        self._ended.put(None)
        self._thread.join(_LEAVE_SECONDS)

    def _write_all(self) -> None:
        while (ended := self._ended.get()) is not None:
            self._write(*ended)
            self._ended.task_done()
        self._files.close()

    def _write(self, generation: Generation, seconds: float, oldest: float) -> None:
        lost = self._no_room + self._not_taken
        try:
            line = line_of(generation, seconds, oldest, lost - self._told)
            self._files.emit(logging.makeLogRecord({"msg": line}))
            self._told, self._is_failing = lost, False
        # Whatever it is: the thread has to write what comes after it.
        except Exception as error:
            self._not_taken += 1
            if not self._is_failing:
                # An error may say in its text what somebody asked.
                why = error.strerror if isinstance(error, OSError) else type(error).__name__
                _log.error("requests are not recorded in %s: %s", self._path, why)
            self._is_failing = True


def recorded(app: App, recorder: Recorder, tenant: str, authorization: bytes | None, salt_key: bytes) -> App:
    """The application, for a request of which the recorder hears.

    Args:
        app: what answers it.
        recorder: that writes.
        tenant: whose it is; empty: no tenants are known, and who asks is told by the API key.
        authorization: the header.
        salt_key: of the pool.
    """
    key = recording_key(salt_key)
    asker = Asker(recorder, tenant, "" if tenant else caller_of(authorization, key), key)

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        token = _asker.set(asker)
        try:
            await app(scope, receive, send)
        finally:
            _asker.reset(token)

    return call


class _Files(RotatingFileHandler):
    """Files that say so when they can't be written, and go on with a line of its own behind one that was cut off.

    One that somebody has removed or moved is begun again, with its folder: what is written into it nobody would find.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and not self._is_there(self.stream):
            self.close()
        super().emit(record)

    def _is_there(self, file: TextIOWrapper) -> bool:
        try:
            return os.path.samestat(Path(self.baseFilename).stat(), os.fstat(file.fileno()))
        except OSError:
            return False

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        file = super()._open()
        if _ends_in_a_line(Path(self.baseFilename)):
            file.write("\n")
        return file

    def handleError(self, record: logging.LogRecord) -> None:
        self.close()
        raise  # It is called where an exception is being handled.


def _ends_in_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"

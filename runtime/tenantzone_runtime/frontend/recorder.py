"""The recorder: writes requests to files, so that they can be replayed. It is off unless it is given a folder.

The format of a line is in ``record``. A thread makes and writes the lines, and requests never wait for it: if the disk
is too slow, or a line can't be made, the line is lost; the next line has the number of lost ones. vLLM may have several
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

from tenantzone_runtime.frontend.answers import App, Receive, Scope, Send
from tenantzone_runtime.frontend.record import Generation, caller_of, line_of, recording_key

_log = logging.getLogger(__name__)

_WAITING: Final = 10_000
"""The most ended requests that may wait to be written."""
_LEAVE_SECONDS: Final = 5.0
"""The time that the end of the process waits for the rest to be written."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The client of one HTTP request, for each of its prompts."""

    recorder: "Recorder"
    tenant: str
    caller: str
    key: bytes

    def begin(self, block_tokens: int) -> Generation:
        """Begin to record a prompt, which the engine gets now."""
        generation = Generation(self.recorder.now(), self.tenant, self.caller, self.key, block_tokens)
        self.recorder.under_way[generation.arrival] = None
        return generation

    def end(self, generation: Generation) -> None:
        """End the recording of a prompt."""
        self.recorder.end(generation)


_asker: ContextVar[Asker | None] = ContextVar("tenantzone_asker", default=None)


def current_asker() -> Asker | None:
    """Returns the client of the current request; None: nothing is recorded."""
    return _asker.get()


class Recorder:
    """Writes recordings.

    Args:
        folder: created if needed.
        max_bytes: of a file, before the next one is begun.
        keep: the number of this process's rotated files to keep.

    Raises:
        OSError: the folder can't be created.
    """

    def __init__(self, folder: Path, max_bytes: int, keep: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.under_way: dict[float, None] = {}
        """The start times of requests that have not ended, oldest first; no two are equal."""
        self._path = folder / f"requests-{socket.gethostname()}-{os.getpid()}.jsonl"
        self._files = _Files(self._path, maxBytes=max_bytes, backupCount=keep, encoding="utf-8", delay=True)
        self._ended: queue.Queue[tuple[Generation, float, float] | None] = queue.Queue(_WAITING)
        # Only one thread writes each counter.
        self._no_room = self._not_taken = self._reported = 0
        self._is_failing = False
        self._latest = 0.0
        self._thread = threading.Thread(target=self._write_all, name="recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def now(self) -> float:
        """Returns a strictly increasing Unix time; steps exceed the rounding, so that times order arrivals."""
        self._latest = max(time.time(), self._latest + 2e-6)
        return self._latest

    def end(self, generation: Generation) -> None:
        """Queue the line of a request that has ended."""
        del self.under_way[generation.arrival]
        now = self.now()
        oldest = next(iter(self.under_way), now)
        try:
            self._ended.put_nowait((generation, now - generation.arrival, oldest))
        except queue.Full:
            self._no_room += 1

    def close(self) -> None:
        """Write the lines of all ended requests, and stop."""
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
            line = line_of(generation, seconds, oldest, lost - self._reported)
            self._files.emit(logging.makeLogRecord({"msg": line}))
            self._reported, self._is_failing = lost, False
        # Any exception: the thread must write the later lines.
        except Exception as error:
            self._not_taken += 1
            if not self._is_failing:
                # The text of an error may quote the request.
                why = error.strerror if isinstance(error, OSError) else type(error).__name__
                _log.error("requests are not recorded in %s: %s", self._path, why)
            self._is_failing = True


def recorded(app: App, recorder: Recorder, tenant: str, authorization: bytes | None, salt_key: bytes) -> App:
    """Returns the application for a request that is recorded.

    Args:
        app: that answers it.
        recorder: that writes.
        tenant: whose request it is; empty: tenants are not identified, and the API key's hash stands for the client.
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
    """Files that log write errors, and start a new line after one that was cut off.

    A file that was removed or moved is created again, with its folder: writes to the old one would be lost.
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
        raise  # This is called while an exception is handled.


def _ends_in_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"

"""The recorder: writes data about requests to files, to replay the requests later. It is off unless it has a folder.

The module ``record`` defines the format of a line. A thread formats and writes the lines, so that requests never wait
for the disk. If the disk is too slow, or a line can't be formatted, the line is lost, and the next line contains the
number of lost lines. Several API server processes and pods may share a folder, so each process writes its own files:
``requests-HOST-PID.jsonl`` and the rotated ``requests-HOST-PID.jsonl.1`` and so on, oldest last.
"""

import atexit
import logging
import os
import queue
import socket
import threading
import time
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenantzone_contract.line_files import RotatedLines
from tenantzone_runtime.frontend.record import Generation, caller_of, line_of, recording_key
from tenantzone_runtime.frontend.responses.answers import App, Receive, Scope, Send

_log = logging.getLogger(__name__)

_WAITING: Final = 10_000
"""Maximum number of ended prompts whose lines wait to be written. The lines of further prompts are lost."""
_LEAVE_SECONDS: Final = 5.0
"""Maximum time in seconds for which an ending process waits, first for room in the queue and then for the thread."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The client of one HTTP request. Its methods record each prompt of the request."""

    recorder: "Recorder"
    tenant: str
    caller: str
    key: bytes

    def begin(self, block_tokens: int) -> Generation:
        """Begin to record a prompt. Called at the moment when the engine gets the prompt."""
        generation = Generation(self.recorder.now(), self.tenant, self.caller, self.key, block_tokens)
        self.recorder.under_way[generation.arrival] = None
        return generation

    def end(self, generation: Generation) -> None:
        """End the recording of a prompt, and queue its line."""
        self.recorder.end(generation)


_asker: ContextVar[Asker | None] = ContextVar("tenantzone_asker", default=None)


def current_asker() -> Asker | None:
    """Returns the client of the current request, or None if requests are not recorded."""
    return _asker.get()


class Recorder:
    """Writes the recording of one process.

    Args:
        folder: the folder of the recording's files. It is created if it does not exist.
        max_bytes: size in bytes at which a file is rotated.
        keep: number of rotated files of this process to keep.

    Raises:
        OSError: the folder can't be created.
    """

    def __init__(self, folder: Path, max_bytes: int, keep: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.under_way: dict[float, None] = {}
        """The distinct arrival times of prompts that have not ended, oldest first."""
        self._path = folder / f"requests-{socket.gethostname()}-{os.getpid()}.jsonl"
        self._files = RotatedLines(self._path, max_bytes, keep + 1, mode=0o666)
        self._ended: queue.Queue[tuple[Generation, float, float] | None] = queue.Queue(_WAITING)
        # No lock is needed, because each counter is written by only one thread.
        self._no_room = self._not_taken = self._reported = 0
        self._is_failing = False
        self._latest = 0.0
        self._thread = threading.Thread(target=self._write_all, name="recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def now(self) -> float:
        """Returns the Unix time. Each returned time is later than the previous one, even after rounding."""
        self._latest = max(time.time(), self._latest + 2e-6)
        return self._latest

    def end(self, generation: Generation) -> None:
        """Queue the line of a prompt whose processing has ended."""
        del self.under_way[generation.arrival]
        now = self.now()
        oldest = next(iter(self.under_way), now)
        try:
            self._ended.put_nowait((generation, now - generation.arrival, oldest))
        except queue.Full:
            self._no_room += 1

    def close(self) -> None:
        """Write the lines of all ended prompts, and stop. If the disk hangs, the method returns after some seconds."""
        atexit.unregister(self.close)
        with suppress(queue.Full):
            self._ended.put(None, timeout=_LEAVE_SECONDS)
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
            self._files.append([f"{line}\n".encode()])
            self._reported, self._is_failing = lost, False
        # Catch every exception, because one failed line must not stop the thread from writing later lines.
        except Exception as error:
            self._not_taken += 1
            if not self._is_failing:
                # Log the text of an OSError only, because the text of another error may quote the request.
                why = error.strerror if isinstance(error, OSError) else type(error).__name__
                _log.error("requests are not recorded in %s: %s", self._path, why)
            self._is_failing = True


def recorded(app: App, recorder: Recorder, tenant: str, authorization: bytes | None, salt_key: bytes) -> App:
    """Wrap the application so that a request's prompts are recorded.

    Args:
        app: the application that answers the request.
        recorder: the recorder to use.
        tenant: the tenant of the request; empty if tenants are not identified. The recording then identifies the client
            by a hash of the API key.
        authorization: the value of the ``Authorization`` header, or None.
        salt_key: the pool's salt key.
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

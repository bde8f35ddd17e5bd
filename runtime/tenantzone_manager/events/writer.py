"""Writes events in a separate thread, so that no call waits for a disk."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from tenantzone_manager.events.files import EventFiles
from tenantzone_manager.events.record import LOST, MANAGER, Field, encode, joined

MAX_BYTES: Final = 64 * 2**20
KEEP: Final = 8
MOST_WAITING: Final = 16 * 2**20
"""Maximum number of bytes of queued events."""
_OF_AN_EVENT: Final = 800
"""Estimated size in bytes of an event without its keys, rounded up."""
_AT_ONCE: Final = 256
"""Maximum number of events to write together."""
_WRITE_SECONDS: Final = 0.5
"""Maximum number of seconds for which events are collected before they are written together."""
_RETRY_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)

Value = str | int | Sequence[bytes]


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Path, size and number of the files of events."""

    path: Path
    max_bytes: int = MAX_BYTES
    """Maximum size of a file in bytes."""
    keep: int = KEEP
    """Maximum number of files."""
    most_waiting: int = MOST_WAITING
    """Maximum number of bytes of queued events."""


class _Waiting(NamedTuple):
    time: float
    fields: dict[str, Field]
    size: int


def _encoded(event: _Waiting) -> bytes:
    try:
        return encode(event.time, event.fields)
    except ValueError:
        # Names with an unpaired surrogate can't be encoded.
        _log.exception("an event can't be encoded, and is replaced by a lost event")
        return encode(event.time, {"event": LOST, "caller": MANAGER, "events": 1})


class Events:
    """Records the events of one manager, from construction to :meth:`close`.

    While the disk accepts no data, events are queued. If the queue is full, events are dropped and counted. One
    ``lost`` event, with the times of the first and the last dropped event, replaces the dropped events.

    Args:
        settings: settings; if None, no events are recorded.
        clock: returns Unix time.
        dropped: called with the number of dropped events, on any thread.

    Raises:
        OSError: the file can't be written.
    """

    def __init__(
        self,
        settings: EventSettings | None,
        clock: Callable[[], float],
        dropped: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._tell_dropped = dropped
        self._queue: deque[_Waiting] = deque()
        self._waiting = 0
        self._lost = 0
        self._lost_since = self._lost_until = 0.0
        self._hurry = False
        self._closing = False
        self._refused = False
        self._changed = threading.Condition()
        self._files: EventFiles | None = None
        self._thread: threading.Thread | None = None
        if settings is not None:
            self._files = self._open(settings)
            self._thread = threading.Thread(target=self._run, args=(settings,), name="events", daemon=True)
            self._thread.start()

    @property
    def is_on(self) -> bool:
        """Whether events are recorded."""
        return self._thread is not None and not self._closing

    def note(self, event: str, caller: str = MANAGER, **fields: Value) -> None:
        """Queue an event for writing. This method never waits for the disk and never raises an error.

        Args:
            event: name of the event.
            caller: name of the caller.
            fields: other fields of ``record.Event``, with complete keys.
        """
        if self._settings is None:
            return
        kept = {name: value if isinstance(value, str | int) else joined(value) for name, value in fields.items()}
        size = _OF_AN_EVENT + sum(len(value) for value in kept.values() if isinstance(value, bytes))
        with self._changed:
            now = self._clock()
            if self._closing or self._waiting + size > self._settings.most_waiting:
                self._drop(now)
                return
            self._tell_lost()
            self._have_wait(now, {"event": event, "caller": caller, **kept}, size)
            if self._waiting > self._settings.most_waiting // 2:
                self._changed.notify_all()

    def _have_wait(self, time: float, fields: dict[str, Field], size: int) -> None:
        self._queue.append(_Waiting(time, fields, size))
        self._waiting += size

    def _drop(self, time: float) -> None:
        if not self._lost:
            self._lost_since = time
        self._lost += 1
        self._lost_until = time
        self._tell_dropped(1)

    def _tell_lost(self) -> None:
        """Queue a ``lost`` event if events were dropped. Call this before queueing another event, to keep the order."""
        if self._lost:
            until = round(self._lost_until, 6)
            lost: dict[str, Field] = {"event": LOST, "caller": MANAGER, "events": self._lost, "until": until}
            self._have_wait(self._lost_since, lost, _OF_AN_EVENT)
            self._lost = 0

    def flush(self) -> bool:
        """Wait until all events have been passed to the operating system; returns False if that fails."""
        with self._changed:
            self._refused = False
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._hurry or self._refused or not self.is_on)
            return not self._refused

    def close(self) -> None:
        """Write the queued events and stop. Events that can't be written in time are dropped."""
        if self._thread is None or self._closing:
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)
        with self._changed:
            if self._queue:
                self._tell_dropped(len(self._queue))
                _log.error("%d events were dropped because they could not be written in time", len(self._queue))

    def _run(self, settings: EventSettings) -> None:
        while self._gather(settings):
            while not self._write(settings):
                with self._changed:
                    if self._closing:
                        return
                    self._changed.wait_for(lambda: self._closing or self._hurry, _RETRY_SECONDS)
        if self._files is not None:
            self._files.close()

    def _gather(self, settings: EventSettings) -> bool:
        """Wait until it is time to write the queued events. Returns False if no more events will be written."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closing or self._hurry or self._waiting > settings.most_waiting // 2, _WRITE_SECONDS
            )
            return not self._closing or bool(self._queue) or bool(self._lost)

    def _write(self, settings: EventSettings) -> bool:
        """Write all queued events; returns whether that succeeded."""
        try:
            while lines := self._lines():
                self._files = self._files or self._open(settings)
                self._done_with(self._files.append(lines))
        except OSError as error:
            self._give_up(settings, error)
            return False
        if self._refused:
            self._refused = False
            _log.warning("events can be written to %s again", settings.path)
        return True

    def _lines(self) -> list[bytes]:
        """Returns the first queued events as lines. The events stay queued until they have been written."""
        with self._changed:
            if not self._queue:
                self._tell_lost()
            if not self._queue:
                self._hurry = False
                self._changed.notify_all()
            first = list(islice(self._queue, _AT_ONCE))
        return [_encoded(each) for each in first]

    def _done_with(self, count: int) -> None:
        with self._changed:
            for _ in range(count):
                self._waiting -= self._queue.popleft().size

    def _give_up(self, settings: EventSettings, error: OSError) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None
        with self._changed:
            if not self._refused:
                _log.error("events can't be written to %s and are queued, retrying: %s", settings.path, error)
            self._refused = True
            self._hurry = False
            self._changed.notify_all()

    @staticmethod
    def _open(settings: EventSettings) -> EventFiles:
        return EventFiles(settings.path, settings.max_bytes, settings.keep)

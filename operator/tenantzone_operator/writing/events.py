"""Writes Kubernetes Events (``events.k8s.io/v1``) in the background, and limits their number.

As in client-go, a repeated notice about an object turns the first Event into a series with a count. The recorder writes
the series when it starts, then at long intervals, and when it has ended. A token bucket limits the Events of each
object. Losing Events is acceptable, because statuses always contain the current state.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from tenantzone_contract.kube_names import GROUP, OPERATOR, VERSION
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.api import explain
from tenantzone_operator.kube.resources import Meta
from tenantzone_operator.kube.rest import REQUEST_ERRORS, RestError
from tenantzone_operator.status.notices import Notice

logger = logging.getLogger(__name__)

SERIES_ENDS_SECONDS = 360.0
"""Seconds without a repetition after which a series ends, so that the next notice is a new Event."""
SERIES_REFRESH_SECONDS = 1800.0
"""Seconds between two writes of the count of a continuing series."""
BURST = 25
"""Maximum number of Events about one object in quick succession."""
REFILL_SECONDS = 300.0
"""Seconds after which one more Event about an object is allowed."""
WRITES_PER_SECOND = 10.0
_LONGEST_QUEUE = 1000
_LOOK_SECONDS = 30.0
_ATTEMPTS = 3
FIRST_RETRY_SECONDS = 1.0
_LONGEST_NOTE = 1024

Key = tuple[str, Notice]


class Writer(Protocol):
    """The methods of `Api` that the recorder needs."""

    async def create_event(self, namespace: str, event: Body) -> None: ...

    async def patch_event(self, namespace: str, name: str, change: Body) -> None: ...


@dataclass(slots=True)
class _Series:
    regarding: dict[str, str]
    notice: Notice
    name: str
    first: str
    seen_at: float
    last: str
    count: int = 1
    written: int = 0
    written_at: float = 0.0


@dataclass(slots=True)
class _Budget:
    """A token bucket for the Events about one object."""

    left: float
    counted_at: float

    def take(self, now: float) -> bool:
        self.left = min(BURST, self.left + (now - self.counted_at) / REFILL_SECONDS)
        self.counted_at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Recorder:
    """Records notices as Kubernetes Events, and writes them in the background.

    Args:
        api: writes the Events.
        clock: returns monotonic seconds.
    """

    def __init__(self, api: Writer, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._instance = socket.gethostname()[:128]
        self._series: dict[Key, _Series] = {}
        self._budgets: dict[str, _Budget] = {}
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(_LONGEST_QUEUE)
        self._looked_at = clock()

    def record(self, kind: str, meta: Meta, notice: Notice) -> None:
        """Queue a notice about an object. If the queue is full, the notice is dropped and logged."""
        now, key = self._clock(), (meta.uid, notice)
        series = self._series.get(key)
        if series is not None and now - series.seen_at < SERIES_ENDS_SECONDS:
            series.count, series.seen_at, series.last = series.count + 1, now, _stamp()
            if series.count == 2:
                self._enqueue(series)
            return
        if not self._budgets.setdefault(meta.uid, _Budget(BURST, now)).take(now):
            return
        stamp = _stamp()
        name = f"{meta.name[:200]}.{time.time_ns():x}"
        self._series[key] = _Series(_regarding(kind, meta), notice, name, first=stamp, last=stamp, seen_at=now)
        self._enqueue(self._series[key])

    async def run(self) -> None:
        """Write queued Events until the task is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    series = await self._queue.get()
                await self._write(series)
                self._queue.task_done()
                await asyncio.sleep(1 / WRITES_PER_SECOND)
            self.refresh()

    async def until_quiet(self) -> None:
        """Wait until another task, which executes `run`, has written all queued Events."""
        await self._queue.join()

    def refresh(self) -> None:
        """Queue series whose count has changed, and discard series that have ended."""
        now = self._clock()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        for key, series in list(self._series.items()):
            is_over = now - series.seen_at >= SERIES_ENDS_SECONDS
            if series.count > series.written > 0 and (is_over or now - series.written_at >= SERIES_REFRESH_SECONDS):
                self._enqueue(series)
            if is_over:
                del self._series[key]
        full = REFILL_SECONDS * BURST
        self._budgets = {uid: budget for uid, budget in self._budgets.items() if now - budget.counted_at < full}

    def _enqueue(self, series: _Series) -> None:
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            logger.warning("dropped an Event, because the queue is full: %s", series.notice.note)

    async def _write(self, series: _Series) -> None:
        for attempt in range(_ATTEMPTS):
            count = series.count
            try:
                await self._send(series)
            except REQUEST_ERRORS as error:
                if isinstance(error, RestError) and error.status < 500 and error.status != 429:
                    logger.warning("dropped an Event, because the API server refuses it: %s", explain(error))
                    return
                logger.info("an Event could not be written; retrying: %s", explain(error))
                await asyncio.sleep(FIRST_RETRY_SECONDS * 2**attempt)
            else:
                series.written, series.written_at = count, self._clock()
                return

    async def _send(self, series: _Series) -> None:
        namespace = _namespace(series)
        shown = {"count": series.count, "lastObservedTime": series.last}
        if series.written:
            try:
                await self._api.patch_event(namespace, series.name, {"series": shown})
                return
            except RestError as error:
                # If the API server has deleted the Event, as it does after an hour, create the Event again.
                if error.status != 404:
                    raise
        try:
            await self._api.create_event(namespace, self._event(series))
        except RestError as error:
            # Ignore a conflict, because an earlier attempt has created the Event, but the response was lost.
            if error.status != 409:
                raise

    def _event(self, series: _Series) -> dict[str, Any]:
        event: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": _namespace(series), "name": series.name},
            "eventTime": series.first,
            "reportingController": f"{GROUP}/{OPERATOR}",
            "reportingInstance": self._instance,
            "regarding": series.regarding,
            "action": series.notice.action,
            "reason": series.notice.reason.value,
            "type": series.notice.type,
            "note": series.notice.note.encode()[:_LONGEST_NOTE].decode(errors="ignore"),
        }
        if series.count > 1:
            event["series"] = {"count": series.count, "lastObservedTime": series.last}
        return event


def _regarding(kind: str, meta: Meta) -> dict[str, str]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        **({"namespace": meta.namespace} if meta.namespace else {}),
        "name": meta.name,
        "uid": meta.uid,
    }


def _namespace(series: _Series) -> str:
    """Returns the namespace of the series' object. Like Kubernetes, uses ``default`` for cluster-scoped objects."""
    return series.regarding.get("namespace", "default")


def _stamp() -> str:
    """Returns the current time as a Kubernetes ``MicroTime``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

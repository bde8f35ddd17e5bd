"""Bounds below the front door: of heads in size and time, of connections, and of requests that wait on one of them.

The door sees a request once its head is complete. Until then uvicorn collects the head, whoever sends it, without a
bound: its parser copies what it has of a header with each piece that comes. So this is uvicorn's own protocol, with a
bound and a deadline for the head. It takes effect in each process in which :func:`bound_connections` was called before
uvicorn is configured.
"""

import asyncio
from typing import Any, ClassVar

import uvicorn.config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tenantzone_runtime.door.answers import App, Receive, Refusal, Scope, Send
from tenantzone_runtime.door.peer import PeerProtocol
from tenantzone_runtime.door.refusals import Reason, count_refusal

MAX_HEAD_BYTES = 64 * 2**10
"""Of the request line and all headers; ``--h11-max-incomplete-event-size`` can lower it."""
MAX_HEADERS = 256
"""``--h11-max-header-count`` can lower it."""
HEAD_SECONDS = 10.0
"""Until the head of a request is complete: since the connection was made, or since the last answer ended."""
UNREAD_SECONDS = 120.0
"""How long a client may take next to nothing of an answer that it was sent."""
MIN_READ_PER_SECOND = 2**10
"""Bytes; less than that is next to nothing."""
READING_SECONDS = 1.0
"""Whoever has not taken an answer whole for so long may have to make room for another connection."""
MAX_PIPELINED = 16
"""Requests of a connection that wait for the answer to one before them: each takes far more memory than bytes."""
MAX_CONNECTIONS = 4096
"""In one API server. Beyond it, the connections that have waited longest without a request are closed first, and then
those whose clients have not taken their answers for longest."""


def bound_connections() -> None:
    """Have uvicorn take the bounded protocol where it would choose one itself, as vLLM lets it."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:BoundedProtocol"


def _refusing(status: int, reason: Reason, message: str, **headers: str) -> App:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        count_refusal(reason)
        await Refusal(status, reason, message, headers={"connection": "close", **headers}).send(scope, send)

    return refuse


_refuse_head = _refusing(
    431, "large_head", f"The request's headers are larger than {MAX_HEAD_BYTES} bytes, or there are too many"
)
_refuse_connection = _refusing(
    503, "connections", "This server has too many connections; try again", **{"retry-after": "1"}
)
_refuse_upgrade = _refusing(
    400, "upgrade", "This server takes no body with the header Upgrade; send the request without that header"
)


class BoundedProtocol(PeerProtocol):
    """A connection to the API server whose heads are bounded in size and in time."""

    head_seconds: float = HEAD_SECONDS
    unread_seconds: float = UNREAD_SECONDS
    max_connections: int = MAX_CONNECTIONS
    _idle: ClassVar[dict["BoundedProtocol", None]] = {}
    """The connections of this process that have no request, the one that has waited longest first."""
    _unread: ClassVar[dict["BoundedProtocol", float]] = {}
    """Those whose clients have not taken all that was sent, and since when on the loop's clock; the longest first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_head = min(MAX_HEAD_BYTES, self.config.h11_max_incomplete_event_size or MAX_HEAD_BYTES)
        self._max_headers = min(MAX_HEADERS, getattr(self.config, "h11_max_header_count", None) or MAX_HEADERS)
        self._in_head = False
        self._has_progressed = False
        """Whether what came last has ended a head, or brought some of a body."""
        self._unfinished_bytes = 0
        """Of a head, or of what may stand behind a body in chunks, what came in pieces that did neither."""
        self._running: RequestResponseCycle | None = None
        """What is being answered; uvicorn knows the last request only, which may be waiting for this one."""
        self._deadline: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None
        """Looks whether the client takes its answer."""
        self._unread_bytes = 0
        """What was left of the answer when that was last looked at."""
        self._has_strayed = False
        """Whether the parser took what is no request of HTTP's for one that has ended."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.scheme == "http":
            # So that uvicorn waits, and the clock runs, for the last byte of an answer, too: what is closed is closed
            # when the client has taken that. With TLS asyncio has a time-out for closing.
            transport.set_write_buffer_limits(0)
        if len(self.connections) > self.max_connections:
            self._make_room()
        self._await_head()

    def _make_room(self) -> None:
        idle, unread = next(iter(self._idle), None), next(iter(self._unread), None)
        if idle is not None:
            idle.transport.abort()
        elif unread is not None and self.loop.time() - self._unread[unread] > READING_SECONDS:
            unread.transport.abort()
        else:
            self.app = _refuse_connection

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._stop_awaiting()
        self._stop_watching_reader()

    def data_received(self, data: bytes) -> None:
        if self._has_strayed:
            return
        self._has_progressed = False
        super().data_received(data)
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # ... or it has become a WebSocket
        self._unfinished_bytes = 0 if self._has_progressed else self._unfinished_bytes + len(data)
        if self._unfinished_bytes > self._max_head:
            self._close_for_head()
        elif not self._is_answering():
            # Whatever came, uvicorn has just stopped its own clock for connections that do nothing.
            self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if len(self.pipeline) >= MAX_PIPELINED:
            self._abort_pipeline()
        self._in_head = self._has_progressed = True

    def on_header(self, name: bytes, value: bytes) -> None:
        # What stands behind a body in chunks is no header: whoever is before this server has not looked at it.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._has_progressed = False, True
        self._stop_awaiting()
        # With Upgrade, or CONNECT, the parser ends the request here, and takes its body for the next one.
        self._has_strayed = self.parser.should_upgrade() and not self._should_upgrade()
        if len(self.headers) > self._max_headers or self._head_bytes() > self._max_head:
            self.app = _refuse_head
        elif self._has_strayed and self._has_body():
            self.app = _refuse_upgrade
        super().on_headers_complete()
        if self._has_strayed:
            self.cycle.keep_alive = False
        if not self.pipeline:
            self._running = self.cycle
        else:
            # Uvicorn has stopped reading, and would not hear that the client has gone.
            self.flow.resume_reading()

    def on_chunk_header(self) -> None:
        """Note that a piece of a body in chunks begins; the parser calls this."""
        self._has_progressed = True

    def on_body(self, body: bytes) -> None:
        self._has_progressed = True
        super().on_body(body)
        if self.pipeline and len(self.cycle.body) > HIGH_WATER_LIMIT:
            self._abort_pipeline()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, unless there is still something to be answered, or to be read, on it."""
        if self._is_answering() or self in self._unread:
            count_refusal("pipelined")
            self.transport.abort()
            return
        begun = len(self.tasks)
        super().handle_websocket_upgrade()
        if len(self.tasks) == begun and not self.transport.is_closing():
            # What was handed over is no handshake, and nobody else would end the connection.
            self.transport.abort()

    def _should_upgrade(self) -> bool:
        return super()._should_upgrade() and self.parser.get_method() == b"GET" and not self._has_body()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: whoever likes could fill the log."""

    def _has_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
            for name, value in self.headers
        )

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._running, _ = self.pipeline[-1]
        super().on_response_complete()
        if not self._is_answering():
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread[self] = self.loop.time()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching_reader()

    def _watch_reader(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._reader = self.loop.call_later(self.unread_seconds, self._look_at_reader)

    def _look_at_reader(self) -> None:
        taken = self._unread_bytes - self.transport.get_write_buffer_size()
        if taken < MIN_READ_PER_SECOND * self.unread_seconds:
            self.transport.abort()
        else:
            self._watch_reader()

    def _abort_pipeline(self) -> None:
        count_refusal("pipelined")
        self.transport.abort()
        # Nothing else ends the parser's work on what came in the same piece.
        raise ConnectionAbortedError("too much waits for the answer to a request before it")

    def _head_bytes(self) -> int:
        # As it stands on the wire: ": " and a line's end with each header.
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.head_seconds, self._close_late)
            self._idle[self] = None

    def _stop_awaiting(self) -> None:
        self._idle.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_watching_reader(self) -> None:
        self._unread.pop(self, None)
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _close_late(self) -> None:
        if self._in_head:
            count_refusal("slow_head")
        self.transport.close()

    def _close_for_head(self) -> None:
        count_refusal("large_head")
        self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
        self.transport.close()

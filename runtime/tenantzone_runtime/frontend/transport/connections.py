"""Limits for connections: the size and time of request heads, the number of connections, and pipelined requests.

The ASGI middleware gets a request only when its head (request line and headers) is complete. Until then, uvicorn
collects the head without a limit, and its parser copies the incomplete header again with each new piece. So this module
extends uvicorn's protocol class. The limits take effect in each process that calls :func:`bound_connections` before
uvicorn is configured.
"""

import asyncio
from typing import Any, ClassVar

import uvicorn.config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tenantzone_runtime.frontend.responses.answers import App, Receive, Refusal, Scope, Send
from tenantzone_runtime.frontend.responses.refusals import Reason, count_refusal
from tenantzone_runtime.frontend.transport.peer import PeerProtocol

MAX_HEAD_BYTES = 64 * 2**10
"""Maximum number of bytes of a request's head. The flag ``--h11-max-incomplete-event-size`` can lower it."""
MAX_HEADERS = 256
"""Maximum number of headers of a request. The flag ``--h11-max-header-count`` can lower it."""
HEAD_SECONDS = 10.0
"""Maximum seconds until a head is complete, from the start of the connection or the end of the previous answer."""
UNREAD_SECONDS = 120.0
"""Seconds after which a client is disconnected if it reads its answer more slowly than `MIN_READ_PER_SECOND`."""
MIN_READ_PER_SECOND = 2**10
"""Minimum rate at which a client must read its answer, in bytes per second."""
READING_SECONDS = 1.0
"""Seconds after which a client with an unread answer may be disconnected to make room for a new connection."""
MAX_PIPELINED = 16
"""Maximum number of pipelined requests of a connection. A pipelined request takes far more memory than its bytes."""
MAX_CONNECTIONS = 4096
"""Maximum number of connections of one API server. A further connection closes the connection that has been idle for
longest. If none is idle, it closes the connection whose client has left its answer unread for longest."""


def bound_connections() -> None:
    """Have uvicorn use `BoundedProtocol` as its default HTTP protocol. vLLM uses the default."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:BoundedProtocol"


def _refusing(status: int, reason: Reason, message: str, **headers: str) -> App:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        count_refusal(reason)
        await Refusal(status, reason, message, headers={"connection": "close", **headers}).send(scope, send)

    return refuse


_refuse_head = _refusing(
    431,
    "large_head",
    f"The request's headers are larger than {MAX_HEAD_BYTES} bytes, or there are too many; send fewer or shorter ones",
)
_refuse_connection = _refusing(
    503, "connections", "This server has too many connections; try again", **{"retry-after": "1"}
)
_refuse_upgrade = _refusing(
    400, "upgrade", "This server accepts no body with the header Upgrade; send the request without that header"
)


class BoundedProtocol(PeerProtocol):
    """A connection to the API server, with limits on request heads, unread answers and pipelined requests."""

    head_seconds: float = HEAD_SECONDS
    unread_seconds: float = UNREAD_SECONDS
    max_connections: int = MAX_CONNECTIONS
    _idle: ClassVar[dict["BoundedProtocol", None]] = {}
    """The connections of this process that wait for a request, the one that has waited longest first."""
    _unread: ClassVar[dict["BoundedProtocol", float]] = {}
    """The connections with unread output, and the event loop's time since which output is unread, oldest first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_head = min(MAX_HEAD_BYTES, self.config.h11_max_incomplete_event_size or MAX_HEAD_BYTES)
        self._max_headers = min(MAX_HEADERS, getattr(self.config, "h11_max_header_count", None) or MAX_HEADERS)
        self._in_head = False
        self._has_progressed = False
        """Whether the data received last began or completed a head, or contained part of a body."""
        self._unfinished_bytes = 0
        """Number of bytes received since the last progress: of an unfinished head, or of trailers after the body."""
        self._running: RequestResponseCycle | None = None
        """The request that is being answered. uvicorn's ``cycle`` is the last request, which may still be waiting."""
        self._deadline: asyncio.TimerHandle | None = None
        """The timer that closes the connection if no head is completed in time."""
        self._reader: asyncio.TimerHandle | None = None
        """The timer of the next check that the client reads its answer."""
        self._unread_bytes = 0
        """Number of unread bytes of the answer at the last check."""
        self._has_strayed = False
        """Whether further data is ignored. True after a request with Upgrade or CONNECT, whose body is not parsed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.scheme == "http":
            # Set the buffer's limit to 0, so that uvicorn and the read timer wait until the client has read the last
            # bytes of an answer. TLS connections need no limit, because asyncio has a time-out for closing them.
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
            return  # the connection is closing, or has become a WebSocket
        self._unfinished_bytes = 0 if self._has_progressed else self._unfinished_bytes + len(data)
        if self._unfinished_bytes > self._max_head:
            self._close_for_head()
        elif not self._is_answering():
            # Start our timer again, because any data stops uvicorn's timer for idle connections.
            self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if len(self.pipeline) >= MAX_PIPELINED:
            self._abort_pipeline()
        self._in_head = self._has_progressed = True

    def on_header(self, name: bytes, value: bytes) -> None:
        # Ignore trailers after a chunked body, because proxies in front of this server do not check trailers.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._has_progressed = False, True
        self._stop_awaiting()
        # If a request has an Upgrade header or the method CONNECT, the parser parses its body as a new request.
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
            # Uvicorn has paused reading. Resume it, because otherwise a disconnect of the client would go unnoticed.
            self.flow.resume_reading()

    def on_chunk_header(self) -> None:
        """Record that a chunk of a body begins. The parser calls this method."""
        self._has_progressed = True

    def on_body(self, body: bytes) -> None:
        self._has_progressed = True
        super().on_body(body)
        if self.pipeline and len(self.cycle.body) > HIGH_WATER_LIMIT:
            self._abort_pipeline()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol, or abort it if an earlier answer is not complete."""
        if self._is_answering() or self in self._unread:
            count_refusal("pipelined")
            self.transport.abort()
            return
        begun = len(self.tasks)
        super().handle_websocket_upgrade()
        if len(self.tasks) == begun and not self.transport.is_closing():
            # The request was not a valid handshake. Abort the connection, because no other code would do so.
            self.transport.abort()

    def _should_upgrade(self) -> bool:
        return super()._should_upgrade() and self.parser.get_method() == b"GET" and not self._has_body()

    def _unsupported_upgrade_warning(self) -> None:
        """Do nothing, because any client could fill the log with this warning."""

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
        # Raise, because otherwise the parser would process the rest of the received data.
        raise ConnectionAbortedError("too many requests or bytes wait for the answer to an earlier request")

    def _head_bytes(self) -> int:
        # Each header has 4 bytes besides its name and value: ": " and the end of the line.
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

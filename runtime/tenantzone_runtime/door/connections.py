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
"""How long a client may take nothing of an answer that it was sent."""
MAX_PIPELINED = 16
"""Requests of a connection that wait for the answer to one before them: each takes far more memory than bytes."""
MAX_CONNECTIONS = 4096
"""In one API server. Beyond it, the connections that have waited longest without a request are closed first."""


def bound_connections() -> None:
    """Have uvicorn take the bounded protocol where it would choose one itself, as vLLM lets it."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:BoundedProtocol"


def _refusing(status: int, reason: Reason, message: str) -> App:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        count_refusal(reason)
        await Refusal(status, reason, message, headers={"connection": "close"}).send(send)

    return refuse


_refuse_head = _refusing(
    431, "large_head", f"The request's headers are larger than {MAX_HEAD_BYTES} bytes, or there are too many"
)
_refuse_connection = _refusing(503, "connections", "This server has too many connections; try again")


class BoundedProtocol(PeerProtocol):
    """A connection to the API server whose heads are bounded in size and in time."""

    head_seconds: float = HEAD_SECONDS
    unread_seconds: float = UNREAD_SECONDS
    max_connections: int = MAX_CONNECTIONS
    _idle: ClassVar[dict["BoundedProtocol", None]] = {}
    """The connections of this process that have no request, the one that has waited longest first."""

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
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            if not self._idle:
                self.app = _refuse_connection
            else:
                next(iter(self._idle)).transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._stop_awaiting()
        self._stop_waiting_for_reader()

    def data_received(self, data: bytes) -> None:
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

    def on_headers_complete(self) -> None:
        self._in_head, self._has_progressed = False, True
        self._stop_awaiting()
        if len(self.headers) > self._max_headers or self._head_bytes() > self._max_head:
            self.app = _refuse_head
        super().on_headers_complete()
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
        """Hand the connection over, unless there is still something to be answered on it."""
        if self._is_answering():
            count_refusal("pipelined")
            self.transport.abort()
        else:
            super().handle_websocket_upgrade()

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._running, _ = self.pipeline[-1]
        super().on_response_complete()
        if not self._is_answering():
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting_for_reader()

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

    def _stop_waiting_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _close_late(self) -> None:
        if self._in_head:
            count_refusal("slow_head")
        self.transport.close()

    def _close_for_head(self) -> None:
        count_refusal("large_head")
        self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
        self.transport.close()

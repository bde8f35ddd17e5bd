"""Serves HTTP with limits for slow clients: time limits for head, body and answer, and a connection limit.

aiohttp closes idle keep-alive connections, but it waits without limit for a request's body and for a client that does
not read its answer, and it accepts any number of connections. To add limits, `_Connection` wraps aiohttp's protocol.
"""

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.streams import StreamReader

BODY_BYTES_PER_SECOND: Final = 64 * 2**10
"""A body's deadline is extended by one second each time this number of bytes has arrived."""
MIN_READ_PER_SECOND: Final = 2**10
"""Minimum rate at which a client must read its answer, in bytes per second; slower clients are disconnected."""
READING_SECONDS: Final = 1.0
"""Time after which a client that does not read its answer may be disconnected in favour of a new connection."""
LOOK_SECONDS: Final = 1.0
"""Maximum time between two checks of all connections."""
_TLS_END_SECONDS: Final = 86400.0
"""Time limit of asyncio for closing a TLS connection. `_Listener.look` aborts the connection long before."""
_POLL_SECONDS: Final = 0.02
"""Interval at which a stopping server checks whether all answers have been sent."""
_BYTES_ACKED: Final = slice(120, 128)
"""Position in Linux's struct tcp_info of tcpi_bytes_acked, the number of bytes that the peer has acknowledged."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """The limits for clients that connect to one port."""

    head_seconds: float = 10.0
    """Maximum time for a request's head, from its first byte. For a first request, from the connection (before TLS)."""
    body_seconds: float = 10.0
    """Maximum time for a request's body, plus one second for each 64 KiB that have arrived."""
    idle_seconds: float = 75.0
    """Maximum time for which a connection stays open after an answer."""
    unread_seconds: float = 30.0
    """Interval over which the client's reading rate is measured. The client must read 1 KiB per second on average."""
    connections: int = 128
    """Maximum number of connections.

    If there are more, one is closed: the one that has waited longest for a complete request, else the one whose client
    has not read its answer for longest. If all others are being answered, the new connection is closed.
    """

    @property
    def look_seconds(self) -> float:
        """Time between two checks of all connections, in seconds."""
        return min(LOOK_SECONDS, min(self.head_seconds, self.body_seconds, self.unread_seconds) / 4)


@asynccontextmanager
async def http_served(
    app: web.Application,
    host: str,
    port: int,
    *,
    stop_seconds: float,
    bounds: HttpBounds | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve a web application while the ``with`` block runs. The context manager's value is the port number.

    Args:
        app: the application, which must not be set up yet, because this function adds a middleware.
        host: the address to listen on.
        port: the port to listen on; 0 chooses a free port.
        stop_seconds: maximum number of seconds for running requests after the block has ended.
        bounds: the limits for clients; None for the defaults.
        tls: the context for HTTPS; None for HTTP.

    Raises:
        OSError: the address is in use, or does not belong to this machine.
    """
    bounds = HttpBounds() if bounds is None else bounds
    listener = _Listener(bounds, tls)
    app.middlewares.insert(0, listener.middleware)
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=stop_seconds,
        keepalive_timeout=bounds.idle_seconds,
        lingering_time=bounds.body_seconds,
    )
    await runner.setup()
    try:
        made = cast(Callable[[], asyncio.Protocol], runner.server)
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(listener, made()), host, port)
        looking = asyncio.create_task(listener.look(), name="slow-clients")
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
    finally:
        stop_at = asyncio.get_running_loop().time() + stop_seconds
        await runner.cleanup()
        await listener.close(stop_at)


class _Phase(Enum):
    """The event that a connection is waiting for."""

    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    NEXT = auto()
    """The connection is idle, and waits for the first byte of another request."""


class _Listener:
    """The connections to one port."""

    def __init__(self, bounds: HttpBounds, tls: ssl.SSLContext | None) -> None:
        self.bounds = bounds
        self.tls = tls
        self._connections: dict[asyncio.BaseProtocol, _Connection] = {}
        """The connections, by aiohttp's protocol object."""
        self._waiting: dict[_Connection, None] = {}
        """The connections whose request is not complete, the longest waiting first."""

    def add(self, connection: "_Connection") -> bool:
        """Add a connection. If there are too many, close one of them. Returns whether the added one stays open."""
        self._connections[connection.inner] = connection
        if len(self._connections) > self.bounds.connections:
            closed = self._longest_waiting(connection)
            closed.abort()
            if closed is connection:
                return False
        self._waiting[connection] = None
        return True

    def _longest_waiting(self, new: "_Connection") -> "_Connection":
        """Returns the connection to close in favour of ``new``, or ``new`` if no other connection may be closed."""
        for connection in self._waiting:
            if not connection.is_unread():
                return connection
        oldest = next(iter(self._waiting), None)
        return new if oldest is None or oldest.waited_seconds() < READING_SECONDS else oldest

    def remove(self, connection: "_Connection") -> None:
        self._connections.pop(connection.inner, None)
        self._waiting.pop(connection, None)

    def complete(self, connection: "_Connection") -> None:
        """Note that a request has arrived completely."""
        self._waiting.pop(connection, None)

    async def close(self, until: float) -> None:
        """Wait until all answers are sent, but not beyond ``until`` in the loop's time. Then close all connections."""
        loop = asyncio.get_running_loop()
        # Poll, because asyncio has no event for an empty write buffer.
        while loop.time() < until and any(each.is_unread() for each in self._connections.values()):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        for connection in [*self._connections.values()]:
            connection.abort()

    @property
    def middleware(self) -> Any:
        @web.middleware
        async def follow(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            connection = self._connections.get(request.protocol)
            if connection is None:  # the connection has just been closed
                return await handler(request)
            connection.begin_request(request.content)
            try:
                return await handler(request)
            finally:
                connection.end_request()
                if request.protocol in self._connections:
                    self._waiting[connection] = None

        return follow

    async def look(self) -> None:
        """Close the connections of slow clients, until cancelled."""
        while True:
            await asyncio.sleep(self.bounds.look_seconds)
            for connection in [*self._connections.values()]:
                if connection.is_late():
                    connection.abort()


class _Connection(asyncio.Protocol):
    """Wraps aiohttp's protocol for one connection, and tracks what the connection waits for and since when."""

    def __init__(self, listener: _Listener, inner: asyncio.Protocol) -> None:
        self.inner = inner
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._phase = _Phase.HEAD
        self._since = self._loop.time()
        self._body: StreamReader | None = None
        self._raw: asyncio.Transport
        """The transport below TLS."""
        self._transport: asyncio.Transport | None = None
        """The transport for aiohttp; None until the TLS handshake has ended."""
        self._handshake: asyncio.Task[None] | None = None
        self._early = b""
        """Data that arrived together with the end of the handshake."""
        self._unread_since: float | None = None
        self._acknowledged = 0
        """Number of bytes that the client had acknowledged at the time ``_unread_since``."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        if not self._listener.add(self):
            return
        if self._listener.tls is None:
            self._connect(self._raw)
        else:
            # Read nothing in plain text before the handshake.
            self._raw.pause_reading()
            self._handshake = self._loop.create_task(self._secure(self._listener.tls))

    async def _secure(self, context: ssl.SSLContext) -> None:
        try:
            secured = await self._loop.start_tls(
                self._raw,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._listener.bounds.head_seconds,
                ssl_shutdown_timeout=_TLS_END_SECONDS,
            )
        except OSError as error:  # includes ssl.SSLError
            _log.debug("a TLS handshake failed: %s", error)
            self._listener.remove(self)
            return
        if secured is None or secured.is_closing():
            self._listener.remove(self)
            return
        self._connect(secured)
        early, self._early = self._early, b""
        if early:
            self.inner.data_received(early)

    def _connect(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if not transport.is_closing():
            self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.remove(self)
        if self._transport is not None:
            self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            self._early += data
            return
        if self._phase is _Phase.NEXT:
            self._enter(_Phase.HEAD)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def begin_request(self, body: StreamReader) -> None:
        """Note that a request's head is complete."""
        self._body = body
        self._enter(_Phase.BODY)
        # aiohttp keeps part of a large body back until the handler reads, so the body may end outside data_received.
        body.on_eof(self._end_body)

    def end_request(self) -> None:
        """Note that the handler has returned. Part of the answer may not be sent yet."""
        self._body = None
        self._enter(_Phase.NEXT)

    def _end_body(self) -> None:
        if self._phase is _Phase.BODY:
            self._enter(_Phase.ANSWER)
            self._listener.complete(self)
        else:  # the request was answered before its body ended
            self._enter(_Phase.NEXT)

    def _enter(self, phase: _Phase) -> None:
        self._phase, self._since = phase, self._loop.time()

    def abort(self) -> None:
        """Close the connection at once, and drop unsent data."""
        self._listener.remove(self)
        self._raw.abort()

    def waited_seconds(self) -> float:
        return self._loop.time() - self._since

    def is_unread(self) -> bool:
        """Returns whether part of an answer is unsent because the client has not read enough."""
        return self._raw.get_write_buffer_size() > 0

    def is_late(self) -> bool:
        """Returns whether the client exceeds a limit. Must be called regularly to measure the client's reading rate."""
        bounds, waited = self._listener.bounds, self.waited_seconds()
        if self._phase is _Phase.HEAD and waited > bounds.head_seconds:
            return True
        if self._phase is _Phase.BODY and self._body is not None:
            if self._transport is not None and not self._transport.is_reading():
                self._since = self._loop.time()  # the handler is slow, not the client
            elif waited > bounds.body_seconds + self._body.total_bytes / BODY_BYTES_PER_SECOND:
                return True
        if self._transport is not None and self._transport.is_closing() and not self.is_unread():
            return waited > bounds.idle_seconds  # the client has the answer, but has not sent TLS's close_notify
        return self._reads_too_slowly()

    def _reads_too_slowly(self) -> bool:
        if not self.is_unread():
            self._unread_since = None
            return False
        now, acknowledged = self._loop.time(), _acknowledged_bytes(self._raw)
        seconds = self._listener.bounds.unread_seconds
        if self._unread_since is not None:
            if now - self._unread_since < seconds:
                return False
            if acknowledged - self._acknowledged < MIN_READ_PER_SECOND * seconds:
                return True
        self._unread_since, self._acknowledged = now, acknowledged
        return False


def _acknowledged_bytes(transport: asyncio.Transport) -> int:
    """Returns how many bytes the client's machine has acknowledged since the connection was made."""
    connection = transport.get_extra_info("socket")
    with suppress(OSError):  # the socket has just been closed
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        return int.from_bytes(info[_BYTES_ACKED], sys.byteorder)
    return 0

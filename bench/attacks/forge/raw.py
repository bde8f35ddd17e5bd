"""Sends requests as raw bytes, including requests that a client library would refuse to send or would repair."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

import h11


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request."""

    status: int | None
    """Status of the answer; None if the server closed the connection without an answer."""
    body: bytes
    seconds: float
    """Seconds from the first byte sent until the answer was complete, or the connection closed."""


async def send_raw(host: str, port: int, request: bytes, *, leaves: bool = False) -> Reply:
    """Send bytes as they are, and read the first answer to them.

    Args:
        host: the host of the server.
        port: the port of the server.
        request: the bytes to send, which need not be a valid request.
        leaves: whether the client closes the connection after sending, without waiting for an answer.

    Raises:
        OSError: the server can't be reached.
    """
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port)
    status, body = None, b""
    try:
        # The server may answer and close the connection before it has read the whole request.
        with suppress(ConnectionError):
            writer.write(request)
            if not leaves:
                status, body = await read_answer(reader, request)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return Reply(status, body, time.perf_counter() - began)


async def read_answer(reader: asyncio.StreamReader, request: bytes) -> tuple[int | None, bytes]:
    """Read the first answer to a request; returns its status, or None without an answer, and its body."""
    connection = h11.Connection(h11.CLIENT)
    # An answer to HEAD has no body, even if it has a Content-Length.
    method = "HEAD" if request.startswith(b"HEAD ") else "GET"
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "asked")]))
    connection.send(h11.EndOfMessage())
    status, body = None, b""
    with suppress(h11.RemoteProtocolError):
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                break
    return status, body

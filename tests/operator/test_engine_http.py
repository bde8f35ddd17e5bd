"""What servers may send at the level of HTTP, and how little of it is accepted; over real sockets."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from hack.ports import free_ports
from tenantzone_operator.engines.http import (
    MAX_HEAD_BYTES,
    PIECE_BYTES,
    PIECE_COSTS_BYTES,
    PIECES,
    SlowError,
    UnbelievableError,
    fetch,
)
from tenantzone_operator.engines.reading_quota import ReadingQuota

MAX_BYTES = 100_000
OK = b"HTTP/1.1 200 OK\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

Send = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Paid(ReadingQuota):
    """Remembers the payments."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[int] = []

    def spend(self, count: int) -> None:
        self.sums.append(count)
        super().spend(count)


@dataclass
class Server:
    """Answers each connection in the same way."""

    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has closed its connection, or it is lost."""
    quota: Paid = field(default_factory=Paid)

    async def ask(self, host: str = "127.0.0.1", patience: float = 60.0) -> bytes:
        return await fetch(host, self.port, "/report?x", max_bytes=MAX_BYTES, quota=self.quota, patience=patience)


@asynccontextmanager
async def serving(send: Send, host: str = "127.0.0.1") -> AsyncIterator[Server]:
    server = Server()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            server.requests.append(await reader.readuntil(b"\r\n\r\n"))
            await send(writer)
            await reader.read()
        server.left.set()
        writer.close()

    listening = await asyncio.start_server(answer, host, 0)
    server.port = listening.sockets[0].getsockname()[1]
    yield server
    listening.close()
    await asyncio.wait_for(server.left.wait(), 60)


def sending(first: bytes, rest: Iterable[bytes] = (), pause: float = 0.0) -> Send:
    """Sends `first`, and the rest one by one, with `pause` seconds after each."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        for text in rest:
            writer.write(text)
            await writer.drain()
            await asyncio.sleep(pause)

    return send


def endlessly(text: bytes, first: bytes = b"") -> Send:
    return sending(first, itertools.repeat(text))


def in_pieces(text: bytes, first: bytes = b"") -> Send:
    """Sends one byte at a time, with time for the client to read each."""
    return sending(first, [text[index : index + 1] for index in range(len(text))], pause=0.001)


def whole(body: bytes, head: bytes = OK) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_body_is_read_as_it_was_sent(host: str):
    body = bytes(range(256)) * 300
    async with serving(sending(whole(body, b"HTTP/1.0 200\r\nX: y\r\n")), host) as server:
        assert await server.ask(host) == body
        assert sum(server.quota.sums) >= len(body)
    (request,) = server.requests
    name = "[::1]" if ":" in host else host
    assert request.startswith(b"GET /report?x HTTP/1.1\r\n")
    assert f"\r\nHost: {name}:{server.port}\r\n".encode() in request
    assert b"\r\nConnection: close\r\n" in request


async def test_a_head_and_a_body_may_come_in_pieces():
    async with serving(in_pieces(whole(b"")[-20:], whole(b"")[:-20])) as server:
        assert await server.ask() == b""
    assert all(paid >= PIECE_COSTS_BYTES for paid in server.quota.sums), "a short piece costs as much as a longer one"


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(endlessly(INTERIM * 8000), id="100 Continue without end"),
        pytest.param(sending(INTERIM + whole(b"{}")), id="100 Continue and then an answer"),
        pytest.param(endlessly(b"HTTP/1.1 102 C\r\n" + b"a: b\r\n" * 100 + b"\r\n"), id="102 with headers"),
        pytest.param(endlessly(b"x" * 10**6, b"HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\n"), id="another protocol"),
        pytest.param(endlessly(b"1\r\n \r\n" * 10_000, CHUNKED), id="chunks of one byte"),
        pytest.param(endlessly(b"1;" + b"x" * 10**6, CHUNKED), id="chunk extensions"),
        pytest.param(endlessly(b"a: b\r\n" * 10_000, CHUNKED + b"0\r\n"), id="trailers"),
        pytest.param(sending(whole(b"{}", CHUNKED[:-2])), id="chunks and a length"),
        pytest.param(endlessly(b"b" * 10**6, OK + b"a: "), id="an endless header"),
        pytest.param(endlessly(b"a: b\r\n" * 10_000, OK), id="endless headers"),
        pytest.param(endlessly(b"x" * 10**6), id="no HTTP"),
        pytest.param(sending(b"SSH-2.0-x\r\n\r\n"), id="another protocol's greeting"),
        pytest.param(sending(OK + b"\r\n{}"), id="no length"),
        pytest.param(sending(OK + b"Content-Length: -1\r\n\r\n"), id="a negative length"),
        pytest.param(sending(OK + b"Content-Length: 2, 2\r\n\r\n{}"), id="a list of lengths"),
        pytest.param(sending(whole(b"{}", OK + b"Content-Length: 1\r\n")), id="two lengths"),
        pytest.param(sending(OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"), id="a length of 5000 digits"),
        pytest.param(endlessly(b" " * 10**5, OK + b"Content-Length: 100001\r\n\r\n"), id="more than is allowed"),
        pytest.param(in_pieces(b" " * 10_000, OK + b"Content-Length: 10000\r\n\r\n"), id="a body in single bytes"),
        pytest.param(in_pieces(b"a" * 8000, OK), id="a head in single bytes"),
    ],
)
async def test_what_no_engine_sends_is_not_read(send: Send):
    async with serving(send) as server:
        with pytest.raises(UnbelievableError):
            await server.ask()
    most = PIECES + MAX_HEAD_BYTES // PIECE_BYTES + 1
    assert len(server.quota.sums) <= most
    assert sum(server.quota.sums) <= MAX_HEAD_BYTES + most * PIECE_COSTS_BYTES


async def test_what_comes_after_the_body_is_not_read():
    async with serving(endlessly(whole(b"{}"))) as server:
        assert await server.ask() == b"{}"
    assert sum(server.quota.sums) <= MAX_HEAD_BYTES


@pytest.mark.parametrize("status", [b"204 No Content", b"302 Found", b"404 Not Found", b"500 x"])
async def test_another_status_is_reported(status: bytes):
    async with serving(sending(b"HTTP/1.1 " + status + b"\r\nLocation: /\r\n\r\n")) as server:
        with pytest.raises(ValueError, match=rf"^/report answers with status {status[:3].decode()}$") as raised:
            await server.ask()
    assert not isinstance(raised.value, UnbelievableError)
    assert len(server.requests) == 1


async def test_who_accepts_and_does_not_answer_is_slow_and_who_is_not_there_refuses():
    async with serving(sending(b"HTTP/1.1 200")) as server:
        with pytest.raises(SlowError):
            await server.ask(patience=0.1)
    server.port = free_ports(1)[0]
    with pytest.raises(ConnectionRefusedError):
        await server.ask()


async def test_who_does_not_even_accept_is_not_slow():
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with pytest.raises(TimeoutError) as raised:
            await Server(full.getsockname()[1]).ask(patience=0.5)
    assert not isinstance(raised.value, SlowError)


@pytest.mark.parametrize("text", [b"", OK, OK + b"Content-Length: 5\r\n\r\n1234"])
async def test_an_answer_that_is_cut_off_is_none(text: bytes):
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        writer.write_eof()

    async with serving(send) as server:
        with pytest.raises(ConnectionError, match="before the end"):
            await server.ask()


async def test_the_connection_ends_with_who_asks():
    heard = asyncio.Event()

    async def send(_: asyncio.StreamWriter) -> None:
        heard.set()

    async with serving(send) as server:
        asking = asyncio.create_task(server.ask())
        await heard.wait()
        assert not server.left.is_set()
        asking.cancel()
        await asyncio.wait_for(server.left.wait(), 60)
    assert asking.cancelled()

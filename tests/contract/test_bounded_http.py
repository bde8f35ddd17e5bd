"""The resources that slow clients of an HTTP listener hold: over real sockets, with and without TLS."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.helpers import DEFAULT_CHUNK_SIZE

from hack.controlplane.credentials import Authority
from tenantzone_contract import bounded_http
from tenantzone_contract.bounded_http import HttpBounds, http_served
from tests.slow_clients import HALF_A_BODY, HALF_A_HEAD, WAIT_SECONDS, connect, is_closed, is_closed_within, silent
from tests.waiting import await_that

SHORT = HttpBounds(head_seconds=0.3, body_seconds=0.3, idle_seconds=0.3, unread_seconds=0.3, connections=4)
PATIENT = HttpBounds(head_seconds=3600, body_seconds=3600, idle_seconds=3600, connections=4)
"""Bounds whose times close nothing within a test."""
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module", params=["plain", "tls"])
def contexts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """TLS contexts of the server and the client."""
    if request.param == "plain":
        yield None, None
        return
    authority = Authority(tmp_path_factory.mktemp("authority"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.issue_server("server"))
    client = ssl.create_default_context(cafile=authority.certificate)
    client.check_hostname = False
    yield server, client


@asynccontextmanager
async def application(
    handler: Callable[[web.Request], Any],
    bounds: HttpBounds = SHORT,
    tls: ssl.SSLContext | None = None,
    *,
    stop_seconds: float = 0.1,
) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with http_served(app, "127.0.0.1", 0, stop_seconds=stop_seconds, bounds=bounds, tls=tls) as port:
        yield port


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(HALF_A_HEAD, b"", id="half a head"),
        pytest.param(HALF_A_HEAD, b"a", id="a head byte by byte"),
        pytest.param(HALF_A_BODY, b"", id="half a body"),
        pytest.param(HALF_A_BODY, b"a", id="a body byte by byte"),
        pytest.param(GET, b"", id="no further request"),
        pytest.param(GET + HALF_A_HEAD, b"a", id="a second head byte by byte"),
    ],
)
async def test_what_a_client_does_not_end_is_not_waited_for(contexts: Any, begin: bytes, drop: bytes) -> None:
    async with application(echo, tls=contexts[0]) as port:
        assert await asyncio.to_thread(is_closed_within, port, begin, drop, contexts[1])


async def test_a_handshake_that_does_not_end_is_not_waited_for(contexts: Any) -> None:
    async with application(echo, tls=contexts[0]) as port:
        assert await asyncio.to_thread(is_closed_within, port, b"\x16\x03\x01", b"")


async def test_a_handler_that_takes_no_body_is_rid_of_it() -> None:
    async def deaf(_: web.Request) -> web.Response:
        return web.Response()

    async with application(deaf) as port:
        assert await asyncio.to_thread(is_closed_within, port, HALF_A_BODY, b"a")


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_is_never_read_is_not_kept(contexts: Any, connection: str, is_streamed: bool) -> None:
    large = b"a" * 2**23
    used: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        used.set_result(request.transport.get_extra_info("socket"))
        if not is_streamed:
            return web.Response(body=large)
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(large)

    def ask(port: int) -> socket.socket:
        client = connect(port, contexts[1], receive_bytes=4096)
        client.sendall(GET.replace(b"\r\n\r\n", f"\r\nConnection: {connection}\r\n\r\n".encode()))
        return client

    async with application(answer, tls=contexts[0]) as port:
        client = await asyncio.to_thread(ask, port)
        with closing(client):
            # None if a busy machine took so long that the connection was closed before the handler looked.
            connection = await used
            await asyncio.to_thread(
                await_that, lambda: connection is None or connection.fileno() == -1, "the connection is closed"
            )


async def test_a_client_that_does_not_end_a_closed_connection_is_not_waited_for(contexts: Any) -> None:
    used: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        used.set_result(request.transport.get_extra_info("socket"))
        return web.Response()

    async with application(answer, tls=contexts[0]) as port:
        with closing(await asyncio.to_thread(connect, port, contexts[1])) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            # None if a busy machine took so long that the connection was closed before the handler looked.
            connection = await used
            await asyncio.to_thread(
                await_that, lambda: connection is None or connection.fileno() == -1, "the connection is closed"
            )


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_is_read_slowly_comes_whole(
    contexts: Any, is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over more than twice as long as a client may read nothing, or asyncio waits for the end of TLS."""
    # Long enough that a busy machine reads in time, and five times each pause.
    unread_seconds, parts = 2.0, 12
    monkeypatch.setattr(asyncio.constants, "SSL_SHUTDOWN_TIMEOUT", unread_seconds)

    async def answer(request: web.Request) -> web.StreamResponse:
        if not is_streamed:
            return web.Response(body=b"a" * parts * 2**20)
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(parts):
            await response.write(b"a" * 2**20)
        return response

    def read(port: int) -> int:
        with closing(connect(port, contexts[1], receive_bytes=65536)) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            taken = 0
            pause = threading.Event()
            while piece := client.recv(2**18):
                if taken // 2**20 != (taken + len(piece)) // 2**20:
                    pause.wait(unread_seconds / 5)
                taken += len(piece)
            return taken

    async with application(answer, replace(PATIENT, unread_seconds=unread_seconds), contexts[0]) as port:
        assert await asyncio.to_thread(read, port) > parts * 2**20


async def test_a_quiet_stream_and_a_slow_handler_are_not_cut() -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(4):
            await asyncio.sleep(SHORT.unread_seconds)
            await response.write(b"token\n")
        return response

    async with application(stream) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        answer = await client.post("/", data=b"{}")
        assert await answer.text() == "token\n" * 4


async def test_a_body_that_makes_progress_may_take_longer_than_its_first_seconds() -> None:
    bounds = HttpBounds(body_seconds=0.3)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"a" * 2**17
            await asyncio.sleep(0.2)

    async with application(echo, bounds) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        answer = await client.post("/", data=pieces())
        assert len(await answer.read()) == 4 * 2**17


async def test_a_connection_is_kept_for_the_next_request(contexts: Any) -> None:
    peers = set()

    async def note(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return await echo(request)

    async with application(note, tls=contexts[0]) as port, aiohttp.ClientSession() as client:
        scheme = "http" if contexts[0] is None else "https"
        for body in (b"one", b"two"):
            asked = client.post(f"{scheme}://127.0.0.1:{port}/", data=body, ssl=contexts[1] or True)
            async with asked as answer:
                assert await answer.read() == body
    assert len(peers) == 1


@pytest.mark.parametrize("begin", [b"", HALF_A_HEAD, HALF_A_BODY, GET], ids=["nothing", "head", "body", "idle"])
async def test_the_connection_that_has_waited_longest_makes_room(contexts: Any, begin: bytes) -> None:
    async with application(echo, PATIENT, contexts[0]) as port:

        def try_it() -> None:
            # A handshake that has not begun counts, too.
            with silent(port, 3 * PATIENT.connections, begin if contexts[0] is None else b"") as slow:
                with closing(connect(port, contexts[1])) as client:
                    client.sendall(GET)
                    assert client.recv(12) == b"HTTP/1.1 200"
                assert is_closed(slow[0])

        await asyncio.to_thread(try_it)


async def test_a_request_under_way_makes_no_room() -> None:
    may_end, began = asyncio.Event(), asyncio.Event()

    async def hold(request: web.Request) -> web.Response:
        began.set()
        await may_end.wait()
        return web.Response(text="held")

    async with application(hold, HttpBounds(connections=1)) as port, aiohttp.ClientSession() as client:
        held_request = asyncio.create_task(client.get(f"http://127.0.0.1:{port}/"))
        await began.wait()
        assert await asyncio.to_thread(is_closed_within, port, b"")
        may_end.set()
        assert await (await held_request).text() == "held"


async def test_a_request_whose_body_waited_for_its_handler_makes_no_room() -> None:
    """aiohttp stops reading at that size, so the body's end arrives when the handler reads it."""
    may_end, began = asyncio.Event(), asyncio.Event()

    async def hold(request: web.Request) -> web.Response:
        assert request.transport is not None
        while request.transport.is_reading():  # noqa: ASYNC110 (no event signals that it stopped)
            await asyncio.sleep(0.01)
        await request.read()
        began.set()
        await may_end.wait()
        return web.Response(text="held")

    async with application(hold, replace(PATIENT, connections=1)) as port, aiohttp.ClientSession() as client:
        body = b"a" * (2 * DEFAULT_CHUNK_SIZE + 1)
        held_request = asyncio.create_task(client.post(f"http://127.0.0.1:{port}/", data=body))
        await began.wait()
        assert await asyncio.to_thread(is_closed_within, port, b"")
        may_end.set()
        assert await (await held_request).text() == "held"


async def test_no_handshake_begins_where_there_is_no_room(contexts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, began = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    start_tls, handshakes = loop.start_tls, 0

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal handshakes
        handshakes += 1
        return await start_tls(*args, **kwargs)

    async def hold(_: web.Request) -> web.Response:
        began.set()
        await may_end.wait()
        return web.Response()

    def ask(port: int) -> bytes:
        with closing(connect(port, contexts[1])) as client:
            client.sendall(GET)
            return client.recv(12)

    monkeypatch.setattr(loop, "start_tls", counted)
    async with application(hold, replace(PATIENT, connections=1), contexts[0]) as port:
        asking = asyncio.create_task(asyncio.to_thread(ask, port))
        await began.wait()
        before = handshakes
        for _ in range(3):
            assert await asyncio.to_thread(is_closed_within, port, b"")
        assert handshakes == before
        may_end.set()
        assert await asking == b"HTTP/1.1 200"


@contextmanager
def unread(port: int) -> Iterator[None]:
    with closing(connect(port, receive_bytes=4096)) as client:
        client.sendall(GET)
        yield


async def test_an_answer_that_is_being_read_makes_room_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "READING_SECONDS", 0.0)
    asked = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(body=b"a" * 2**23)

    async with application(answer, HttpBounds(connections=2)) as port:

        def try_it() -> None:
            with unread(port), silent(port, 1) as slow:
                await_that(lambda: asked == 1, "the answer is under way")
                with unread(port):
                    assert is_closed(slow[0])
                    await_that(lambda: asked == 2, "the second answer is under way")
                    # Both are being read: the one that began first makes room.
                    with closing(connect(port)) as last:
                        last.sendall(b"GET / HTTP/1.0\r\n\r\n")
                        assert last.recv(12) == b"HTTP/1.0 200"

        await asyncio.to_thread(try_it)


async def test_an_answer_that_is_being_read_at_the_end_comes_whole(contexts: Any) -> None:
    began = asyncio.Event()
    large = b"a" * 2**23

    async def answer(_: web.Request) -> web.Response:
        began.set()
        return web.Response(body=large)

    def read(port: int) -> int:
        with closing(connect(port, contexts[1], receive_bytes=65536)) as client:
            client.sendall(GET)
            pause, taken = threading.Event(), 0
            while piece := client.recv(2**16):
                taken += len(piece)
                pause.wait(0.002)
            return taken

    async with application(answer, PATIENT, contexts[0], stop_seconds=WAIT_SECONDS) as port:
        reading = asyncio.create_task(asyncio.to_thread(read, port))
        await began.wait()
    assert await reading > len(large)


async def test_the_end_frees_the_port_and_closes_what_is_open() -> None:
    async with application(echo) as port:
        slow = await asyncio.to_thread(connect, port)
        slow.sendall(GET)
        assert await asyncio.to_thread(slow.recv, 12) == b"HTTP/1.1 200"
    with closing(slow):
        assert await asyncio.to_thread(is_closed, slow)
    socket.create_server(("127.0.0.1", port)).close()

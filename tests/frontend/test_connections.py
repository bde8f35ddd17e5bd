"""What arrives before a request's head is complete: bounded in bytes, in time and in number, over real sockets."""

import asyncio
import socket
import threading
import time
from contextlib import closing, suppress

import httpx
import pytest
import uvicorn.config
from prometheus_client import REGISTRY

from tenantzone_runtime.frontend.responses.refusals import Reason, families
from tenantzone_runtime.frontend.transport.connections import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_PIPELINED,
    BoundedProtocol,
    bound_connections,
)
from tests.frontend.harness import echo, error_of, eventually, serving

LONG_SECONDS = 60.0
"""Seconds that no test waits for."""


@pytest.fixture(autouse=True)
def _bounded(monkeypatch):
    monkeypatch.setattr(uvicorn.config, "HTTP_PROTOCOLS", dict(uvicorn.config.HTTP_PROTOCOLS))
    bound_connections()


@pytest.fixture
def url():
    with serving(echo) as url:
        yield url


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr(BoundedProtocol, "head_seconds", 0.3)


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=LONG_SECONDS)


def sent_until_closed(connection: socket.socket, piece: bytes, pieces: int) -> int:
    """Returns the bytes that the other side accepted before it closed, or before all pieces were sent."""
    sent = 0
    try:
        for _ in range(pieces):
            connection.sendall(piece)
            sent += len(piece)
    except OSError:
        return sent
    raise AssertionError(f"{sent} bytes were taken")


def is_closed(connection: socket.socket) -> bool:
    """Waits until the other side closes. Returns whether it did so without an answer."""
    try:
        return connection.recv(65536) == b""
    except ConnectionError:
        return True


def counted(reason: Reason) -> float:
    (family,) = families()
    return REGISTRY.get_sample_value(family.name, {"reason": reason}) or 0.0


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(b"GET /health HTTP/1.1\r\nhost: x\r\nx-long: ", id="a header"),
        pytest.param(b"GET /", id="a path"),
        pytest.param(b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;", id="a chunk's head"),
        pytest.param(b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", id="a trailer"),
    ],
)
def test_what_has_no_end_is_cut_off_early(url, begin):
    before = counted("large_head")
    with closing(connect(url)) as connection:
        connection.sendall(begin)
        # The contents of the sockets' own buffers are sent, too.
        assert sent_until_closed(connection, b"a" * 65536, 1600) < 32 * 2**20
    assert counted("large_head") == before + 1
    assert httpx.get(f"{url}/health", timeout=60).status_code == 200


def test_endless_lines_are_cut_off_as_one_endless_line_is(url):
    with closing(connect(url)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        assert sent_until_closed(connection, b"x: y\r\n" * 10_000, 1600) < 32 * 2**20


def test_a_large_head_is_answered_in_openais_shape(url):
    response = httpx.get(f"{url}/health", headers={"x-long": "a" * MAX_HEAD_BYTES}, timeout=60)
    assert (error_of(response)["code"], response.headers["connection"]) == (431, "close")


def test_too_many_headers_are_refused(url):
    many = [(f"x-{number}", "y") for number in range(MAX_HEADERS + 1)]
    assert httpx.get(f"{url}/health", headers=many, timeout=60).status_code == 431


def test_a_head_of_usual_size_passes_in_pieces_of_any_size(url):
    head = (
        b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-long: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n\r\n"
    )
    for size in (97, 4096, len(head)):
        with closing(connect(url)) as connection:
            for start in range(0, len(head), size):
                connection.sendall(head[start : start + size])
            assert connection.recv(12) == b"HTTP/1.1 200"


def test_a_body_is_no_head(url):
    body = b"a" * (8 * MAX_HEAD_BYTES)
    assert len(httpx.post(f"{url}/v1/completions", content=body, timeout=60).json()["body"]) == len(body)

    def one_byte_each():
        yield from [b"a"] * 1000

    assert len(httpx.post(f"{url}/v1/completions", content=one_byte_each(), timeout=60).json()["body"]) == 1000


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("begin", [b"", b"\r\n", b"GET /health HT", b"GET /health HTTP/1.1\r\nhost: x\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(url, begin):
    with closing(connect(url)) as connection:
        connection.sendall(begin)
        assert is_closed(connection)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("drop", [b"a", b"\r\n"])
def test_a_head_that_comes_in_drops_gets_no_longer(url, drop):
    begin = b"GET /health HTTP/1.1\r\nx: " if drop == b"a" else b""
    with closing(connect(url)) as connection:
        connection.sendall(begin)
        connection.settimeout(0.05)
        assert drips_until_closed(connection, drop)


@pytest.mark.usefixtures("_impatient")
def test_a_body_that_is_never_read_holds_no_connection(url):
    async def deaf(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    with serving(deaf) as deaf_url, closing(connect(deaf_url)) as connection:
        connection.sendall(b"POST /ping HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        connection.settimeout(0.05)
        assert drips_until_closed(connection, b"a")


def drips_until_closed(connection: socket.socket, drop: bytes) -> bool:
    """Sends drop after drop until the other side closes."""
    for _ in range(int(LONG_SECONDS / 0.05)):
        try:
            connection.sendall(drop)
            if connection.recv(65536) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


@pytest.mark.usefixtures("_impatient")
def test_an_answer_may_take_longer_than_a_head():
    async def answer(scope, receive, send):
        await asyncio.sleep(3 * BoundedProtocol.head_seconds)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    with serving(answer) as url, httpx.Client(timeout=LONG_SECONDS) as client:
        assert [client.get(f"{url}/health").text for _ in range(2)] == ["late", "late"]


def test_a_connection_is_kept_for_the_next_request(url):
    with httpx.Client(timeout=60) as client:
        ports = {
            client.get(f"{url}/health").extensions["network_stream"].get_extra_info("client_addr")[1] for _ in "ab"
        }
    assert len(ports) == 1


@pytest.mark.usefixtures("_impatient")
def test_the_second_of_two_requests_at_once_may_take_as_long():
    async def answer(scope, receive, send):
        if scope["path"] == "/second":
            await asyncio.sleep(3 * BoundedProtocol.head_seconds)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    with serving(answer) as url, closing(connect(url)) as connection:
        connection.sendall(b"".join(b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n" % name for name in (b"first", b"second")))
        received = b""
        while b"/second" not in received:
            piece = connection.recv(65536)
            assert piece, "it was closed"
            received += piece
        assert received.count(b"200 OK") == 2


def test_requests_that_wait_for_one_before_them_are_bounded():
    may_end, waiting = asyncio.Event(), []

    async def hold(scope, receive, send):
        waiting.append(asyncio.get_running_loop())
        await may_end.wait()
        await echo(scope, receive, send)

    request = b"GET /health HTTP/1.1\r\n\r\n"
    before = counted("pipelined")
    with serving(hold) as url, closing(connect(url)) as few, closing(connect(url)) as many:
        few.sendall(request * (1 + MAX_PIPELINED))
        many.sendall(request * (2 + MAX_PIPELINED))
        assert is_closed(many)
        assert counted("pipelined") == before + 1
        eventually(lambda: len(waiting) == 2)
        waiting[0].call_soon_threadsafe(may_end.set)
        received = b""
        while received.count(b"200 OK") <= MAX_PIPELINED:
            received += few.recv(65536)


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_a_request_hears_that_its_client_has_gone(behind):
    seen, gone = threading.Event(), threading.Event()

    async def wait(scope, receive, send):
        seen.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    with serving(wait) as url:
        with closing(connect(url)) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            assert seen.wait(LONG_SECONDS)
            for _ in range(behind):
                connection.sendall(b"GET /health HTTP/1.1\r\n\r\n")
                # There is no sign that it was read; if it was not, the test holds without it.
                time.sleep(0.05)
        assert gone.wait(LONG_SECONDS)


def test_a_body_that_waits_for_an_answer_is_bounded():
    async def hold(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass

    with serving(hold) as url, closing(connect(url)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n\r\nPOST /ping HTTP/1.1\r\ncontent-length: 1000000000\r\n\r\n")
        assert sent_until_closed(connection, b"a" * 65536, 1600) < 32 * 2**20


def test_a_websocket_behind_a_request_ends_the_connection_and_leaves_nothing():
    before = len(BoundedProtocol._idle)
    upgrade = b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"

    async def answer(scope, receive, send):
        await asyncio.sleep(0)
        await echo(scope, receive, send)

    with serving(answer) as url, closing(connect(url)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n\r\n" + upgrade)
        assert is_closed(connection)
        eventually(lambda: len(BoundedProtocol._idle) == before)


def test_the_connection_that_has_waited_longest_makes_room(monkeypatch, url):
    monkeypatch.setattr(BoundedProtocol, "max_connections", 2)
    with closing(connect(url)) as first, closing(connect(url)) as second:
        second.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n")
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
        assert is_closed(first)
        second.sendall(b"\r\n")
        assert second.recv(12) == b"HTTP/1.1 200"


def test_where_all_connections_have_requests_one_more_is_refused(monkeypatch):
    monkeypatch.setattr(BoundedProtocol, "max_connections", 1)
    may_end, loops = asyncio.Event(), []

    async def hold(scope, receive, send):
        loops.append(asyncio.get_running_loop())
        await may_end.wait()
        await echo(scope, receive, send)

    with serving(hold) as url, closing(connect(url)) as busy:
        busy.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        eventually(lambda: bool(loops))
        response = httpx.get(f"{url}/health", timeout=60)
        assert (response.status_code, error_of(response)["type"]) == (503, "ServiceUnavailableError")
        loops[0].call_soon_threadsafe(may_end.set)
        assert busy.recv(12) == b"HTTP/1.1 200"


def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(monkeypatch):
    monkeypatch.setattr(BoundedProtocol, "unread_seconds", 0.3)
    ended = []

    async def flood(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"a" * 65536, "more_body": True})
        ended.append((await receive())["type"])

    with serving(flood) as url, closing(connect(url)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        eventually(lambda: ended == ["http.disconnect"], seconds=LONG_SECONDS)


def test_an_answer_that_is_taken_slowly_is_not_cut_off(monkeypatch):
    monkeypatch.setattr(BoundedProtocol, "unread_seconds", 0.3)
    body = b"a" * 8 * 2**20

    async def at_once(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    with serving(at_once) as url, closing(connect(url)) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        taken, began = 0, time.monotonic()
        while piece := connection.recv(65536):
            taken += len(piece)
            # In all several times as long as a client may read nothing.
            time.sleep(max(0.0, began + taken / len(body) - time.monotonic()))
        assert taken > len(body)


def unread(url: str, more: bytes = b"") -> socket.socket:
    """Sends a request, and reads nothing of the answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.connect((host, int(port)))
    connection.sendall(b"GET /health HTTP/1.1\r\n" + more + b"\r\n")
    return connection


async def fill(scope, receive, send):
    """Answers with as much as the kernel buffers without a client, and less than uvicorn keeps without waiting."""
    if scope["path"] != "/health":
        await echo(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9999999")]})
    transport = send.__self__.transport
    while not transport.get_write_buffer_size():
        await send({"type": "http.response.body", "body": b"a" * 1024, "more_body": True})
        await asyncio.sleep(0)
    send.__self__.response_complete = True
    if not send.__self__.keep_alive:
        transport.close()
    send.__self__.on_response()


@pytest.mark.parametrize("more", [b"", b"connection: close\r\n"], ids=["kept", "closed"])
def test_who_has_not_taken_the_end_of_an_answer_is_cut_off(monkeypatch, more):
    monkeypatch.setattr(BoundedProtocol, "unread_seconds", 0.3)
    with serving(fill, loop="asyncio") as url, closing(unread(url, more)):
        eventually(lambda: len(BoundedProtocol._unread) == 1)
        eventually(lambda: not BoundedProtocol._unread and not BoundedProtocol._idle)


def test_who_has_not_taken_an_answer_for_long_makes_room(monkeypatch):
    monkeypatch.setattr(BoundedProtocol, "max_connections", 1)
    with serving(fill, loop="asyncio") as url, closing(unread(url, b"connection: close\r\n")):
        eventually(lambda: len(BoundedProtocol._unread) == 1)

        def is_admitted() -> bool:
            return httpx.get(f"{url}/v1/models", timeout=60).status_code == 200

        eventually(is_admitted)
        assert not BoundedProtocol._unread


def test_what_stands_behind_a_body_is_no_header(url):
    chunks = b"2\r\n{}\r\n0\r\nx-late: y\r\nauthorization: Bearer key\r\n\r\n"
    with closing(connect(url)) as connection:
        connection.sendall(b"POST /ping HTTP/1.0\r\nx-early: y\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"x-early" in answer
    assert b"x-late" not in answer
    assert b"authorization" not in answer


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
@pytest.mark.parametrize("length", [b"content-length: %d", b"transfer-encoding: chunked"])
def test_a_body_behind_an_upgrade_is_no_request(upgrade, length):
    """The parser takes it for a request, and with it what a gateway has let through as a body."""
    seen = []

    async def note(scope, receive, send):
        seen.append(scope["path"])
        await echo(scope, receive, send)

    before = counted("upgrade")
    smuggled = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
    head = b"POST /ping HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: " + upgrade + b"\r\n"
    head += length.replace(b"%d", str(len(smuggled)).encode()) + b"\r\n\r\n"
    with serving(note) as url, closing(connect(url)) as connection:
        connection.sendall(head)
        eventually(lambda: counted("upgrade") == before + 1)
        connection.sendall(smuggled)
        answer = b""
        with suppress(ConnectionError):  # it may be closed before what was sent last was read
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.count(b"HTTP/1.1") <= 1
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
    assert seen == ["/health"]


def test_an_upgrade_that_is_not_known_is_passed_over(url):
    headers = b"host: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    with closing(connect(url)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + headers)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer


def test_what_is_no_handshake_holds_no_connection(url):
    """A line longer than the WebSocket parser reads: it waits for nothing, and sends nothing."""
    upgrade = b"host: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nx-long: " + b"a" * 20_000 + b"\r\n\r\n"
    with closing(connect(url)) as connection:
        connection.sendall(b"GET /v1/realtime HTTP/1.1\r\n" + upgrade)
        assert is_closed(connection)

"""Slow clients of a manager's ports, over real sockets: it serves others meanwhile, and closes what does not go on."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import pytest

from tenantzone_contract.bounded_http import HttpBounds
from tenantzone_manager.app import AppSettings, run
from tenantzone_manager.server import grpc_connections
from tenantzone_manager.server.grpc_connections import GrpcBounds
from tests.manager.asking import over_grpc, over_http
from tests.manager.playing import eventually
from tests.slow_clients import HALF_A_BODY, HALF_A_HEAD, connect, is_closed, is_closed_within, silent

SHORT_HTTP = HttpBounds(head_seconds=0.3, body_seconds=0.3, idle_seconds=0.3, unread_seconds=0.3)
SHORT_GRPC = GrpcBounds(
    handshake_seconds=0.5,
    message_seconds=0.5,
    answer_seconds=0.5,
    idle_seconds=0.5,
    age_seconds=1,
    grace_seconds=0.5,
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CALL = b"POST /v1/ListStorages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{"
PATH = b"/tenantzone.manager.v1.KVCacheManager/ListStorages"
HEAD = (
    b"\x83\x86"  # POST, http
    + b"\x44"  # :path
    + bytes([len(PATH)])
    + PATH
    + b"\x41\x01x"  # :authority
    + b"\x40\x0ccontent-type\x10application/grpc"
    + b"\x40\x02te\x08trailers"
)
NO_ROOM = b"\x00\x04\x00\x00\x00\x00"
"""A setting by which nothing of an answer may be sent."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


BEGUN = PREFACE + frame(4, 0, 0) + frame(4, 1, 0)
"""A connection without a call."""


@dataclass(frozen=True)
class Ports:
    http: int
    grpc: int


@asynccontextmanager
async def managing(folder: Path, http: HttpBounds, rpc: GrpcBounds) -> AsyncIterator[Ports]:
    started: asyncio.Future[Ports] = asyncio.get_running_loop().create_future()
    settings = AppSettings(
        str(folder / "index.db"), ("127.0.0.1", 0), ("127.0.0.1", 0), http_bounds=http, grpc_bounds=rpc
    )
    running = asyncio.create_task(run(settings, lambda *ports: started.set_result(Ports(*ports))))
    try:
        await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
        yield started.result()
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.fixture
async def ports(tmp_path: Path) -> AsyncIterator[Ports]:
    async with managing(tmp_path, SHORT_HTTP, SHORT_GRPC) as made:
        yield made


async def test_what_a_client_over_http_does_not_end_is_not_waited_for(ports: Ports) -> None:
    cases = [(b"", b""), (HALF_A_HEAD, b""), (HALF_A_HEAD, b"a"), (HALF_A_BODY, b"a"), (CALL, b""), (CALL, b"a")]
    closed = [asyncio.to_thread(is_closed_within, ports.http, *case) for case in cases]
    assert all(await asyncio.gather(*closed))


async def test_an_answer_that_is_never_read_is_not_kept(ports: Ports) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def try_it() -> bool:
        with closing(connect(ports.http, receive_bytes=4096)) as client:
            client.sendall(request * 200)
            return is_closed(client)

    assert await asyncio.to_thread(try_it)


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(PREFACE[:10], id="half of HTTP/2's first bytes"),
        pytest.param(PREFACE, id="no settings"),
        pytest.param(PREFACE + frame(4, 0, 0), id="no acknowledgement"),
        pytest.param(BEGUN, id="no call"),
        pytest.param(BEGUN + frame(1, 0, 1, HEAD[:4]), id="half a head"),
        pytest.param(BEGUN + frame(1, 4, 1, HEAD) + frame(0, 0, 1, b"\0\0\0\0\x09a"), id="half a message"),
        pytest.param(
            PREFACE + frame(4, 0, 0, NO_ROOM) + frame(4, 1, 0) + frame(1, 4, 1, HEAD) + frame(0, 1, 1, b"\0\0\0\0\0"),
            id="an answer unread",
        ),
    ],
)
async def test_what_a_client_over_grpc_does_not_end_is_not_waited_for(ports: Ports, begin: bytes) -> None:
    assert await asyncio.to_thread(is_closed_within, ports.grpc, begin)


async def test_a_client_over_grpc_that_answers_no_ping_is_not_waited_for(tmp_path: Path) -> None:
    """By no other bound within a test."""
    async with managing(tmp_path, HttpBounds(), GrpcBounds(answer_seconds=0.5)) as ports:
        assert await asyncio.to_thread(is_closed_within, ports.grpc, BEGUN + frame(1, 0, 1, HEAD[:4]))


async def test_a_call_without_its_message_ends(ports: Ports) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        call = channel.stream_unary("/tenantzone.manager.v1.KVCacheManager/ListStorages")()
        with pytest.raises(grpc.aio.AioRpcError, match=r"message was not received within 0\.5 s"):
            await call


async def test_many_slow_clients_keep_no_other_out(tmp_path: Path) -> None:
    # By time, nothing is closed.
    http = HttpBounds(head_seconds=3600, connections=8)
    rpc = GrpcBounds(handshake_seconds=3600, connections=8, look_seconds=0.1)
    async with managing(tmp_path, http, rpc) as ports, AsyncExitStack() as stack:
        for port in (ports.http, ports.grpc):
            slow = stack.enter_context(silent(port, 40, HALF_A_HEAD if port == ports.http else PREFACE))
            asks = over_http if port == ports.http else over_grpc
            async with asks(port) as ask:
                await ask("ListStorages")
            # Over gRPC any connections that came within the same milliseconds may stay.
            await eventually(partial(is_within, port, 8), True)
            await eventually(partial(asyncio.to_thread, are_closed, slow, 32), True)


@pytest.mark.parametrize("begin", [b"", PREFACE, BEGUN, BEGUN + frame(1, 4, 1, HEAD)], ids=len)
async def test_after_each_wave_there_are_no_more_connections_than_the_bound(tmp_path: Path, begin: bytes) -> None:
    http = HttpBounds(head_seconds=3600, connections=8)
    rpc = GrpcBounds(handshake_seconds=3600, connections=8, look_seconds=0.1)
    async with managing(tmp_path, http, rpc) as ports, AsyncExitStack() as stack:
        for port in 3 * (ports.http, ports.grpc):
            stack.enter_context(silent(port, 40, begin if port == ports.grpc else HALF_A_HEAD))
            await eventually(partial(is_within, port, 8), True)


async def is_within(port: int, most: int) -> bool:
    """Whether this process holds at most `most` connections to its port, and the kernel as many open ones."""
    return len(held(port)) <= most and established(port) <= most


def held(port: int) -> list[int]:
    """The files of this process that are connections to its port."""
    found = []
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError), grpc_connections._accepted(number, port):
            found.append(number)
    return found


def established(port: int) -> int:
    tables = [Path("/proc/self/net", name).read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return sum(int(row[1].rpartition(":")[2], 16) == port and row[3] == "01" for row in rows)


def are_closed(connections: list[socket.socket], least: int) -> bool:
    """Whether at least `least` of the connections are closed by now."""
    for each in connections:
        each.settimeout(0.01)
    return sum(map(is_closed, connections)) >= least


async def test_a_moment_without_descriptors_ends_no_bound(tmp_path: Path) -> None:
    rpc = GrpcBounds(handshake_seconds=3600, connections=8, look_seconds=0.02)
    async with managing(tmp_path, HttpBounds(), rpc) as ports:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            await asyncio.sleep(10 * rpc.look_seconds)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        with silent(ports.grpc, 40, PREFACE):
            # The kernel counts silence in ticks of some milliseconds, so any of the 40 may be the one that is kept.
            await eventually(partial(is_within, ports.grpc, 8), True)

"""Slow clients of the operator's ports: probes, metrics and the console."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing

import pytest
from prometheus_client.registry import Collector

from tenantzone_contract.bounded_http import HttpBounds
from tenantzone_operator.console.server import ReplicaState, console_served
from tenantzone_operator.kube.resources import Pod, Pool
from tenantzone_operator.kube.store import Store
from tenantzone_operator.serving.exposition import metrics_served
from tenantzone_operator.serving.health import health_served
from tests.slow_clients import HALF_A_BODY, HALF_A_HEAD, connect, is_closed, is_closed_within, silent

SHORT = HttpBounds(head_seconds=0.3, body_seconds=0.3, idle_seconds=0.3, unread_seconds=0.3)

Serve = Callable[[HttpBounds], AbstractAsyncContextManager[int]]


class _Nothing(Collector):
    def collect(self) -> list[object]:  # type: ignore[override]
        return []


def _probes(bounds: HttpBounds) -> AbstractAsyncContextManager[int]:
    return health_served("127.0.0.1", 0, live=lambda: (True, {}), ready=lambda: (True, {}), bounds=bounds)


def _metrics(bounds: HttpBounds) -> AbstractAsyncContextManager[int]:
    return metrics_served("127.0.0.1", 0, _Nothing(), bounds)


def _console(bounds: HttpBounds) -> AbstractAsyncContextManager[int]:
    async def no_pods(_: Pool) -> list[Pod]:
        return []

    async def no_tokens(*_: str) -> Sequence[str]:
        return ()

    state = ReplicaState(is_leading=True, is_ready=True, has_listed=True)
    return console_served(0, Store(), no_pods, no_tokens, lambda: state, bounds=bounds)


@pytest.fixture(params=[(_probes, "/healthz"), (_metrics, "/metrics"), (_console, "/")], ids=lambda each: each[1])
def listener(request: pytest.FixtureRequest) -> tuple[Serve, str]:
    serve, path = request.param
    return serve, path


@pytest.mark.parametrize(
    ("begin", "drop"),
    [(HALF_A_HEAD, b""), (HALF_A_HEAD, b"a"), (HALF_A_BODY, b"a")],
    ids=["half a head", "a head byte by byte", "a body byte by byte"],
)
async def test_what_a_client_does_not_end_is_not_waited_for(
    listener: tuple[Serve, str], begin: bytes, drop: bytes
) -> None:
    async with listener[0](SHORT) as port:
        assert await asyncio.to_thread(is_closed_within, port, begin, drop)


async def test_many_slow_clients_keep_no_other_out(listener: tuple[Serve, str]) -> None:
    serve, path = listener
    patient = HttpBounds(head_seconds=3600, connections=8)

    def try_it(port: int) -> None:
        with silent(port, 3 * patient.connections) as slow, closing(connect(port)) as client:
            client.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            assert client.recv(12) in (b"HTTP/1.0 200", b"HTTP/1.1 200")
            assert is_closed(slow[0])

    async with serve(patient) as port:
        await asyncio.to_thread(try_it, port)


@pytest.fixture
async def shown() -> AsyncIterator[int]:
    async with _console(SHORT) as port:
        yield port


async def test_a_client_that_never_reads_keeps_no_connection(shown: int) -> None:
    """It requests the page again and again, and reads nothing: the second request is not even read."""
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def try_it() -> bool:
        with closing(connect(shown, receive_bytes=4096)) as client:
            client.sendall(request * 50)
            return is_closed(client)

    assert await asyncio.to_thread(try_it)

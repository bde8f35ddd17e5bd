"""Measures the cost of the frontend's bounded HTTP protocol, by comparing uvicorn with it to uvicorn as in vLLM.

Each server is a process on one core, with vLLM's event loop and an application that reads a request's body and answers
at once; the client runs on another core. All servers get requests in turn. The bench compares the servers' CPU time per
request, which does not depend on the client's speed.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
import uvicorn
import uvloop

from bench.figures import paired_ratios
from hack.ports import free_ports

PROTOCOLS: Final[Mapping[str, str]] = {
    "stock httptools": "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol",
    "bounded": "tenantzone_runtime.frontend.transport.connections:BoundedProtocol",
    "stock h11": "uvicorn.protocols.http.h11_impl:H11Protocol",
}
_STOCK = next(iter(PROTOCOLS))
_HEAD: Final = (
    "Host: engine.models.svc:8000",
    "User-Agent: AsyncOpenAI/Python 2.8.1",
    "Accept: application/json",
    "Accept-Encoding: gzip, deflate",
    "Authorization: Bearer sk-0123456789abcdef0123456789abcdef",
    "Content-Type: application/json",
    "X-Stainless-Lang: python",
    "X-Stainless-Runtime: CPython",
    "X-Request-Id: 0123456789abcdef0123456789abcdef",
    "Traceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
)
_PIECES = 100
"""Number of pieces of a streamed answer."""


@dataclass(frozen=True, slots=True)
class Load:
    """A repeated request."""

    name: str
    body_bytes: int
    at_once: int
    requests: int
    """Total number of requests in each round."""
    path: str = "/whole"
    is_kept: bool = True
    """Whether connections are reused for the next request."""


LOADS: Final = (
    Load("1 KiB, connections kept", 2**10, at_once=32, requests=4000),
    Load("1 KiB, a connection each", 2**10, at_once=32, requests=2000, is_kept=False),
    Load("64 KiB, connections kept", 2**16, at_once=32, requests=2000),
    Load("1 MiB, connections kept", 2**20, at_once=8, requests=200),
    Load(f"answers in {_PIECES} pieces", 2**10, at_once=32, requests=500, path="/pieces"),
)


@dataclass(slots=True)
class Rounds:
    """The measurements of one server under one load, one figure for each round."""

    cpu_seconds: list[float] = field(default_factory=list)
    """CPU time of the server per request, in seconds."""
    per_second: list[float] = field(default_factory=list)
    """Number of requests per second."""


class Server:
    """A server in a separate process.

    Args:
        protocol: the HTTP protocol, as a value of uvicorn's option.
        cores: the cores that the server may use.
    """

    def __init__(self, protocol: str, cores: set[int]) -> None:
        (self.port,) = free_ports(1)
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(protocol, self.port, cores), daemon=True
        )
        self._process.start()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def cpu_seconds(self) -> float:
        """Returns the CPU time that the server has used so far, in seconds."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)


def _serve(protocol: str, port: int, cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)
    config = uvicorn.Config(
        _answer, port=port, http=protocol, loop="uvloop", lifespan="off", log_level="warning", access_log=False
    )
    uvicorn.Server(config).run()


async def _answer(
    scope: Mapping[str, Any],
    receive: Callable[[], Awaitable[Mapping[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    while (await receive()).get("more_body", False):
        pass
    count = _PIECES if scope["path"] == "/pieces" else 1
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    for number in range(1, count + 1):
        await send({"type": "http.response.body", "body": b"token\n", "more_body": number < count})


async def ask(port: int, load: Load) -> None:
    """Send the requests of a load with the load's concurrency.

    Raises:
        RuntimeError: an answer is wrong.
    """
    remaining = iter(range(load.requests))
    await asyncio.gather(*(_ask_in_turn(port, load, remaining) for _ in range(load.at_once)))


async def _ask_in_turn(port: int, load: Load, remaining: Iterator[int]) -> None:
    kept = "keep-alive" if load.is_kept else "close"
    lines = (f"POST {load.path} HTTP/1.1", *_HEAD, f"Connection: {kept}", f"Content-Length: {load.body_bytes}")
    request = "\r\n".join((*lines, "", "")).encode() + b"x" * load.body_bytes
    connection = None
    for _ in remaining:
        reader, writer = connection or await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the server answers {head[:100]!r}")
        await reader.readuntil(b"0\r\n\r\n")
        connection = (reader, writer) if load.is_kept else None
        if not load.is_kept:
            writer.close()
    if connection is not None:
        connection[1].close()


def measure(servers: Mapping[str, Server], loads: Sequence[Load], rounds: int) -> dict[str, dict[str, Rounds]]:
    """Send each load to all servers in turn; the first round of each load is a warm-up.

    Returns:
        The measurements by load and server.
    """
    seen = {load.name: {name: Rounds() for name in servers} for load in loads}
    for load in loads:
        print(load.name, file=sys.stderr, flush=True)
        for number in range(rounds + 1):
            for name, server in servers.items():
                began, used = time.perf_counter(), server.cpu_seconds()
                uvloop.run(ask(server.port, load))
                if number:
                    of_server = seen[load.name][name]
                    of_server.cpu_seconds.append((server.cpu_seconds() - used) / load.requests)
                    of_server.per_second.append(load.requests / (time.perf_counter() - began))
    return seen


def table(seen: Mapping[str, Mapping[str, Rounds]]) -> str:
    """Returns a line per load and server with the medians, and the median ratio to stock over the rounds."""
    lines = [f"{'':<26} {'':<16} {'requests/s':>10} {'processor':>13} {'ratio':>7}  (of the rounds)"]
    for load, by_server in seen.items():
        stock = by_server[_STOCK].cpu_seconds
        for name, found in by_server.items():
            ratios = sorted(paired_ratios(found.cpu_seconds, stock))
            lines.append(
                f"{load:<26} {name:<16} {statistics.median(found.per_second):>10,.0f} "
                f"{statistics.median(found.cpu_seconds) * 1e6:>10.0f} µs {statistics.median(ratios):>7.3f}"
                f"  ({ratios[0]:.3f} to {ratios[-1]:.3f})"
            )
    return "\n".join(lines)


def main() -> None:
    """Start the servers, send the loads, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.frontend.http_protocol",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=9, help="of each load, after one more (default: %(default)s)")
    rounds = parser.parse_args().rounds
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as running:
        servers = {name: running.enter_context(Server(protocol, {cores[0]})) for name, protocol in PROTOCOLS.items()}
        os.sched_setaffinity(0, set(cores[1:]) or set(cores))
        for server in servers.values():
            uvloop.run(await_ready(server.port))
        print(table(measure(servers, LOADS, rounds)))


async def await_ready(port: int) -> None:
    """Wait until a server listens."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return


if __name__ == "__main__":
    main()

"""``python -m bench.kvcache_manager``: a manager as a process, over HTTP and gRPC; then its index with many blocks.

The client is a process of its own and asks one thing after the other, so times are those that an engine would see.
Times begin with a request as its fields and end with the answer's bytes (HTTP) or message (gRPC).
"""

import argparse
import asyncio
import contextlib
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import msgspec

from hack.debian import ensure
from hack.ports import free_ports
from hack.progress import say
from tenantzone_manager.core.records import Block, CacheLocation, LocationSpec, State, encode_block
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.index.backend import Address, Change, Commit
from tenantzone_manager.index.redis import RedisBackend
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.server.generated import manager_pb2
from tenantzone_manager.server.grpc import SERVICE
from tenantzone_manager.spaces import blocks_of

NAME: Final = "manager"
PREFIX: Final = 1000
WRITE: Final = 64
_SIZE: Final = 4096
_INSTANCE: Final = Instance("chat", "team", 64, (Spec("tp0", _SIZE),))
WITH_EVENTS: Final = "SQLite, with events"


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.kvcache_manager", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="of each measurement (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=1_000_000, help="in the large index (default: %(default)s)")
    options = parser.parse_args()
    print("| index | protocol | what | p50 ms | p99 ms | a second |\n|---|---|---|---|---|---|", flush=True)
    for index in ("SQLite", WITH_EVENTS, "Redis"):
        with tempfile.TemporaryDirectory() as folder, _redis(Path(folder)) as url:
            asyncio.run(_served(index, Path(folder), url, options.rounds))
    print("\n| index | blocks | bytes a block | seconds to open it again | 1,000 of them past the cache, p50 ms |")
    print("|---|---|---|---|---|", flush=True)
    for index in ("SQLite", "Redis"):
        with tempfile.TemporaryDirectory() as folder, _redis(Path(folder)) as url:
            asyncio.run(_large(index, Path(folder), url, options.blocks))


async def _served(index: str, folder: Path, url: str, rounds: int) -> None:
    say(NAME, f"{index}: a manager with {PREFIX} blocks")
    (folder / "disk").mkdir()
    path = url if index == "Redis" else str(folder / "index.db")
    events = ("--events", str(folder / "events.jsonl")) if index == WITH_EVENTS else ()
    with _manager(path, *events) as (http_port, grpc_port):
        async with _http(http_port) as ask, _grpc(grpc_port) as ask_grpc:
            await _register(ask, folder / "disk")
            prompt = [random.randbytes(32) for _ in range(PREFIX)]
            for begin in range(0, PREFIX, WRITE):
                await _write(ask, prompt[: begin + WRITE], begin)
            for protocol, client in (("HTTP", ask), ("gRPC", ask_grpc)):
                for length in (PREFIX, WRITE):
                    times = await _times(rounds, partial(_find, client, prompt[:length]))
                    _print(index, protocol, f"prefix of {length} blocks", times)
                times = await _times(rounds, partial(_write_new, client))
                _print(index, protocol, f"start and finish a write of {WRITE}", times)


async def _find(ask: Any, prompt: list[bytes]) -> None:
    await ask("GetCacheLocation", instance_id="chat", block_keys=prompt)


async def _write_new(ask: Any) -> None:
    await _write(ask, [random.randbytes(32) for _ in range(WRITE)], 0)


async def _write(ask: Any, prompt: list[bytes], first: int) -> None:
    started = await ask("StartWriteCache", instance_id="chat", block_keys=prompt, first_block=first)
    write_id = started["write_id"] if isinstance(started, dict) else started.write_id
    await ask("FinishWriteCache", instance_id="chat", write_id=write_id, block_keys=prompt[first:])


async def _register(ask: Any, disk: Path) -> None:
    await ask("RegisterStorage", storage={"name": "disk", "type": "FileSystem", "options": {"root": str(disk)}})
    await ask("PutInstanceGroup", group={"name": "team", "storages": ["disk"], "total": {"limit": 2**50}})
    await ask("RegisterInstance", instance=_INSTANCE)


async def _times(rounds: int, work: Callable[[], Awaitable[None]]) -> list[float]:
    times = []
    for number in range(rounds + 10):
        began = time.perf_counter()
        await work()
        if number >= 10:
            times.append(1000 * (time.perf_counter() - began))
    return times


def _print(index: str, protocol: str, what: str, times: list[float]) -> None:
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    rate = 1000 * len(times) / sum(times)
    print(f"| {index} | {protocol} | {what} | {p50:.2f} | {p99:.2f} | {rate:,.0f} |", flush=True)


async def _large(index: str, folder: Path, url: str, blocks: int) -> None:
    backend: Any = SqliteBackend(folder / "index.db") if index == "SQLite" else RedisBackend(url, "", 60.0)
    await backend.start(lambda *_: None)
    empty = await backend.size()
    space = blocks_of(_INSTANCE)
    keys: list[bytes] = []
    parent = b""
    for begin in range(0, blocks, 2000):
        changes = []
        for depth in range(2000):
            key = random.randbytes(32)
            location = CacheLocation(
                "abcdefghijkl", "FileSystem", "disk", State.SERVING, 0.0, (LocationSpec("tp0", _SIZE),)
            )
            block = Block(parent if depth else b"", depth, time.time(), 1, (location,), {"FileSystem": 1, "": 1})
            changes.append(Change(Address(space, key), None, encode_block(block)))
            keys.append(key)
            parent = key
        await backend.commit(Commit(changes))
        if begin % 200_000 == 0:
            say(NAME, f"{index}: {begin:,} blocks")
    await backend.close()
    began = time.perf_counter()
    backend = SqliteBackend(folder / "index.db") if index == "SQLite" else RedisBackend(url, "", 60.0)
    await backend.start(lambda *_: None)
    await backend.get(space, keys[:1])
    opened = time.perf_counter() - began
    size = await backend.size() - empty
    times = await _times(100, lambda: backend.get(space, random.sample(keys, PREFIX)))
    await backend.close()
    print(f"| {index} | {blocks:,} | {size / blocks:.0f} | {opened:.3f} | {statistics.median(times):.2f} |", flush=True)


@contextlib.contextmanager
def _redis(folder: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    program = str(ensure("redis-server"))
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
    with subprocess.Popen([*command, "--appendonly", "yes"], stdout=subprocess.DEVNULL) as server:
        _await_port(port)
        yield f"redis://127.0.0.1:{port}/0"
        server.terminate()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nobody listens on port {port}")


@contextlib.contextmanager
def _manager(index: str, *options: str) -> Iterator[tuple[int, int]]:
    http_port, grpc_port = free_ports(2)
    command = [sys.executable, "-m", "tenantzone_manager", "--anyone", "--index", index, "--log-level", "warning"]
    ports = ["--listen", f"127.0.0.1:{http_port}", "--grpc", f"127.0.0.1:{grpc_port}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([*command, *ports, *options], env=environment) as process:
        _await_port(http_port)
        yield http_port, grpc_port
        process.terminate()


@contextlib.asynccontextmanager
async def _http(port: int) -> AsyncIterator[Any]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def ask(call: str, **fields: Any) -> Any:
            async with session.post(f"/v1/{call}", data=msgspec.json.encode(fields)) as answer:
                body = await answer.read()
            if answer.status != 200:
                raise RuntimeError(body.decode())
            return msgspec.json.decode(body) if call != "GetCacheLocation" else None

        yield ask


@contextlib.asynccontextmanager
async def _grpc(port: int) -> AsyncIterator[Any]:
    methods = manager_pb2.DESCRIPTOR.services_by_name["KVCacheManager"].methods_by_name
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:

        async def ask(call: str, **fields: Any) -> Any:
            request = getattr(manager_pb2, methods[call].input_type.name)(**fields)
            answer = getattr(manager_pb2, methods[call].output_type.name)
            method = channel.unary_unary(
                f"/{SERVICE}/{call}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return await method(request)

        yield ask


if __name__ == "__main__":
    main()

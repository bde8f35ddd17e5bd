"""``python -m bench.kvcache_manager``: measures a manager process over HTTP and gRPC, then its index with many blocks.

The client is a separate process and sends one call after the other, so an engine would see the same times. Times
include encoding the request, and end when the answer's bytes (HTTP) or message (gRPC) are available.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.kvcache_manager.processes import (
    INSTANCE,
    SIZE,
    client,
    grpc_client,
    manager,
    register,
    write,
)
from hack.harness.redis_server import RedisServer
from hack.progress import say
from tenantzone_manager.core.records import Block, CacheLocation, LocationSpec, State, encode_block
from tenantzone_manager.index.backend import Address, Change, Commit
from tenantzone_manager.index.redis import RedisBackend
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.spaces import blocks_of

NAME: Final = "manager"
PREFIX: Final = 1000
WRITE: Final = 64
STORES: Final = ("SQLite", "Redis")
_START_SECONDS: Final = 600.0
WITH_EVENTS: Final = "SQLite, with events"


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.kvcache_manager", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="of each measurement (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=1_000_000, help="in the large index (default: %(default)s)")
    parser.add_argument(
        "--large", nargs="+", choices=STORES, metavar="STORE", help="measure these large indices only, not the calls"
    )
    options = parser.parse_args()
    if not options.large:
        _calls(options.rounds)
    print("\n| index | blocks | bytes a block | seconds to open it again | 1,000 of them past the cache, p50 ms |")
    print("|---|---|---|---|---|", flush=True)
    for index in options.large or STORES:
        with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder), _START_SECONDS) as redis:
            asyncio.run(_large(index, Path(folder), redis, options.blocks))


def _calls(rounds: int) -> None:
    print("| index | protocol | what | p50 ms | p99 ms | a second |\n|---|---|---|---|---|---|", flush=True)
    for index in ("SQLite", WITH_EVENTS, "Redis"):
        with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as redis:
            asyncio.run(_served(index, Path(folder), redis.url, rounds))


async def _served(index: str, folder: Path, url: str, rounds: int) -> None:
    say(NAME, f"{index}: a manager with {PREFIX} blocks")
    (folder / "disk").mkdir()
    path = url if index == "Redis" else str(folder / "index.db")
    events = ("--events", str(folder / "events.jsonl")) if index == WITH_EVENTS else ()
    with manager(path, *events) as served:
        async with client(served.http) as ask, grpc_client(served.grpc) as ask_grpc:
            await register(ask, folder / "disk")
            prompt = [random.randbytes(32) for _ in range(PREFIX)]
            for begin in range(0, PREFIX, WRITE):
                await write(ask, prompt[: begin + WRITE], begin)
            for protocol, each in (("HTTP", ask), ("gRPC", ask_grpc)):
                for length in (PREFIX, WRITE):
                    times = await _times(rounds, partial(_find, each, prompt[:length]))
                    _print(index, protocol, f"prefix of {length} blocks", times)
                times = await _times(rounds, partial(_write_new, each))
                _print(index, protocol, f"start and finish a write of {WRITE}", times)


async def _find(ask: Any, prompt: list[bytes]) -> None:
    await ask("GetCacheLocation", instance_id="chat", block_keys=prompt)


async def _write_new(ask: Any) -> None:
    await write(ask, [random.randbytes(32) for _ in range(WRITE)], 0)


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


async def _large(index: str, folder: Path, server: RedisServer, blocks: int) -> None:
    backend: Any = SqliteBackend(folder / "index.db") if index == "SQLite" else RedisBackend(server.url, "", 60.0)
    await backend.start(lambda *_: None)
    empty = await backend.size()
    space = blocks_of(INSTANCE)
    keys: list[bytes] = []
    parent = b""
    for begin in range(0, blocks, 2000):
        changes = []
        for depth in range(2000):
            key = random.randbytes(32)
            location = CacheLocation(
                "abcdefghijkl", "FileSystem", "disk", State.SERVING, 0.0, (LocationSpec("tp0", SIZE),)
            )
            block = Block(parent if depth else b"", depth, time.time(), 1, (location,), {"FileSystem": 1, "": 1})
            changes.append(Change(Address(space, key), None, encode_block(block)))
            keys.append(key)
            parent = key
        await backend.commit(Commit(changes))
        # Let other tasks run between writes.
        await asyncio.sleep(0)
        if begin % 200_000 == 0:
            say(NAME, f"{index}: {begin:,} blocks")
    await backend.close()
    server.kill()
    began = time.perf_counter()
    if index == "Redis":
        # Redis reads its append-only file when it starts.
        server.start()
    backend = SqliteBackend(folder / "index.db") if index == "SQLite" else RedisBackend(server.url, "", 60.0)
    await backend.start(lambda *_: None)
    await backend.get(space, keys[:1])
    opened = time.perf_counter() - began
    size = await backend.size() - empty
    times = await _times(100, lambda: backend.get(space, random.sample(keys, PREFIX)))
    await backend.close()
    print(f"| {index} | {blocks:,} | {size / blocks:.0f} | {opened:.3f} | {statistics.median(times):.2f} |", flush=True)


if __name__ == "__main__":
    main()

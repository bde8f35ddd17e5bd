"""``python -m bench.kvcache_manager.turns``: measures how long small calls wait while a pool sends the largest calls.

The manager is a process with a SQLite index, and the client is a separate process. One pool starts writes of many
blocks, finishes them and removes the blocks, one call after the other without a pause. At the same time another pool
queries one block, and ``/healthz`` is requested. For comparison, the small calls are also measured without the first
pool.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
from msgspec.structs import replace

from bench.kvcache_manager.processes import INSTANCE, client, manager, register
from hack.progress import say
from tenantzone_manager.server.messages import MAX_KEYS

NAME: Final = "turns"
_PAUSE_SECONDS: Final = 0.01
"""Pause between two small calls."""


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.kvcache_manager.turns", description=__doc__)
    parser.add_argument("--blocks", type=int, default=MAX_KEYS, help="of each large call (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=4, help="large calls at a time (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement (default: %(default)s)")
    options = parser.parse_args()
    print(
        "| small call | at the same time | calls | p50 ms | p99 ms | slowest ms |\n|---|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder), options.blocks, options.at_once, options.seconds))


async def _measure(folder: Path, blocks: int, at_once: int, seconds: float) -> None:
    (folder / "disk").mkdir()
    with manager(str(folder / "index.db")) as served:
        async with client(served.http) as ask, aiohttp.ClientSession(f"http://127.0.0.1:{served.http}") as session:
            await register(ask, folder / "disk")
            await ask("RegisterInstance", instance=replace(INSTANCE, name="quiet", pool="shop/quiet"))
            small = {
                "a query of 1 block": partial(
                    ask, "GetCacheLocation", instance_id="quiet", block_keys=[random.randbytes(32)]
                ),
                "/healthz": partial(_healthz, session),
            }
            await _round(small, "nothing", seconds)
            done = [0]
            large = [asyncio.create_task(_write_and_remove(ask, blocks, done)) for _ in range(at_once)]
            await asyncio.sleep(1)
            await _round(small, f"{at_once} writes of {blocks:,} blocks at a time", seconds)
            say(NAME, f"{done[0]} large calls ended")
            for task in large:
                task.cancel()
            await asyncio.gather(*large, return_exceptions=True)


async def _round(small: Mapping[str, Callable[[], Awaitable[Any]]], load: str, seconds: float) -> None:
    times = await asyncio.gather(*(_times(work, seconds) for work in small.values()))
    for what, of_it in zip(small, times, strict=True):
        p50, p99 = statistics.median(of_it), statistics.quantiles(of_it, n=100)[98]
        print(f"| {what} | {load} | {len(of_it):,} | {p50:.1f} | {p99:.1f} | {max(of_it):.1f} |", flush=True)


async def _times(work: Callable[[], Awaitable[Any]], seconds: float) -> list[float]:
    """Repeat a call for some seconds; returns the duration of each, in milliseconds."""
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        await work()
        times.append(1000 * (time.perf_counter() - began))
        await asyncio.sleep(_PAUSE_SECONDS)
    return times


async def _healthz(session: aiohttp.ClientSession) -> None:
    async with session.get("/healthz") as answer:
        await answer.read()


async def _write_and_remove(ask: Any, blocks: int, done: list[int]) -> None:
    while True:
        keys = [random.randbytes(32) for _ in range(blocks)]
        started = await ask("StartWriteCache", instance_id="chat", block_keys=keys)
        done[0] += 1
        await ask("FinishWriteCache", instance_id="chat", write_id=started["write_id"], block_keys=keys)
        done[0] += 1
        await ask("RemoveCache", instance_id="chat", block_keys=keys)
        done[0] += 1


if __name__ == "__main__":
    main()

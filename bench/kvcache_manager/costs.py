"""Measures the cost of calls as CPU time of real manager and Redis processes, so that other processes don't affect it.

A call is assumed to have a fixed cost and a cost per block. Both are derived from calls with few and with many blocks.
"""

import asyncio
import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.kvcache_manager.processes import client, manager, register, write
from hack.harness.redis_server import RedisServer

_FEW: Final = 8
_MANY: Final = 64


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of a call, in seconds: a fixed part, and a part per block."""

    call: float
    block: float

    def of(self, blocks: int) -> float:
        """Returns the cost of a call with ``blocks`` blocks."""
        return self.call + self.block * blocks


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of calls to a manager with an index in Redis."""

    query: Cost
    """Manager's cost of a query that its search cache answers."""
    missed: Cost
    """Manager's cost of a query that needs Redis."""
    missed_redis: Cost
    """Redis' cost of a query."""
    write: Cost
    """Manager's cost of StartWriteCache and FinishWriteCache together."""
    write_redis: Cost
    """Redis' cost of StartWriteCache and FinishWriteCache together."""
    heard: Cost
    """Cost for another manager of the two notifications about a write."""


async def measure(rounds: int) -> Costs:
    """Measure the costs with two managers and a separate Redis.

    Args:
        rounds: the number of measurements of each call.
    """
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
        (redis,) = server.pids
        disk = Path(folder) / "disk"
        disk.mkdir()
        with manager(server.url) as first, manager(server.url, "--search-cache", "1") as second:
            async with client(first.http) as ask, client(second.http) as ask_second:
                await register(ask, disk)
                prompt = [random.randbytes(32) for _ in range(_MANY)]
                await write(ask, prompt, 0)
                query, _ = await _linear(rounds, lambda some: _find(ask, prompt[:some]), first.pid, redis)
                missed, missed_redis = await _linear(
                    rounds, lambda some: _find(ask_second, prompt[:some]), second.pid, redis
                )
                async with _of(second.pid) as heard_few:
                    await _times(rounds, lambda: _write(ask, _FEW))
                async with _of(second.pid) as heard_many:
                    await _times(rounds, lambda: _write(ask, _MANY))
                written, written_redis = await _linear(rounds, lambda some: _write(ask, some), first.pid, redis)
                heard = _through(heard_few[0] / rounds, heard_many[0] / rounds)
    return Costs(query, missed, missed_redis, written, written_redis, heard)


async def _find(ask: Any, keys: list[bytes]) -> None:
    await ask("GetCacheLocation", instance_id="chat", block_keys=keys)


async def _write(ask: Any, blocks: int) -> None:
    await write(ask, [random.randbytes(32) for _ in range(blocks)], 0)


async def _linear(rounds: int, call: Callable[[int], Awaitable[None]], *pids: int) -> tuple[Cost, ...]:
    """Returns the cost of a call for each of the given processes."""
    spent = []
    for blocks in (_FEW, _MANY):
        await call(blocks)
        async with contextlib.AsyncExitStack() as stack:
            used = [await stack.enter_async_context(_of(pid)) for pid in pids]
            await _times(rounds, lambda some=blocks: call(some))  # type: ignore[misc]
        spent.append([seconds[0] / rounds for seconds in used])
    return tuple(_through(few, many) for few, many in zip(*spent, strict=True))


async def _times(rounds: int, call: Callable[[], Awaitable[None]]) -> None:
    for _ in range(rounds):
        await call()


def _through(few: float, many: float) -> Cost:
    block = max(0.0, (many - few) / (_MANY - _FEW))
    return Cost(max(0.0, few - _FEW * block), block)


@contextlib.asynccontextmanager
async def _of(pid: int) -> AsyncIterator[list[float]]:
    """Append to the yielded list, when the block ends, the seconds of CPU time that a process used in the block."""
    spent: list[float] = []
    before = _processor_seconds(pid)
    yield spent
    # Include the work that the process does after its last answer.
    await asyncio.sleep(0.2)
    spent.append(_processor_seconds(pid) - before)


def _processor_seconds(pid: int) -> float:
    """Returns the CPU time of all threads of a process, in seconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

"""Sends load from several processes, so that the client is not the bottleneck."""

import asyncio
import contextlib
import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from bench.gpu.plan import Answered, Plan, concurrency, split
from bench.processes import importing_alike

_REQUESTS_PER_PROCESS: Final = 32
_CORES_OF_ENGINES: Final = 4
"""Cores for the API server and the engine core of two engines."""
_LEAD_SECONDS: Final = 0.1
"""Time between sending a plan and starting it, so that all processes have read it by then."""
_LONGEST_LINE: Final = 1 << 28


class LoadError(Exception):
    """A load process exited; the message has its error output."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The measurements of a plan.

    Attributes:
        streams: the counts and times of each stream, by its name.
        window_seconds: the length of the window.
        client_cpu_share: the busiest process's share of one core; near 1, the client was the bottleneck.
    """

    streams: Mapping[str, Answered]
    window_seconds: float
    client_cpu_share: float


class Workers:
    """Load processes that are kept between plans; use it as an asynchronous context manager.

    Args:
        most: the maximum number of processes; None for one per core that two engines leave free, and at least one.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most or max(1, len(os.sched_getaffinity(0)) - _CORES_OF_ENGINES)
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def run(self, plan: Plan) -> Loaded:
        """Send a plan's requests and wait until the plan has ended.

        Raises:
            LoadError: a process exited before the plan had ended.
        """
        wanted = min(self._most, math.ceil(concurrency(plan.streams) / _REQUESTS_PER_PROCESS) or 1)
        parts = split(plan, wanted)
        try:
            await self._start(len(parts))
            return await self._run(plan, parts)
        except BaseException:
            # A process that is in the middle of a plan cannot begin another plan, so replace all processes.
            await self._end()
            raise

    async def _start(self, count: int) -> None:
        """Start processes until at least this many are ready for a plan."""
        new = [await _start() for _ in range(count - len(self._processes))]
        self._processes += new
        await asyncio.gather(*map(_receive, new))

    async def _run(self, plan: Plan, parts: list[Plan]) -> Loaded:
        processes = self._processes[: len(parts)]
        begin = time.monotonic() + _LEAD_SECONDS
        for process, part in zip(processes, parts, strict=True):
            await _send(process, {"begin": begin, "plan": dataclasses.asdict(part)})
        # Each process reports when its requests with arrival times are answered. The other streams go on until then.
        await asyncio.gather(*map(_receive, processes))
        await asyncio.sleep(max(0.0, begin + plan.window[1] - time.monotonic()))
        for process in processes:
            await _send(process, {"stop": True})
        results = await asyncio.gather(*map(_receive, processes))
        streams = {stream.name: Answered() for stream in plan.streams}
        for result in results:
            for name, answered in result["streams"].items():
                streams[name].add(Answered(**answered))
        share = max(result["cpu_share"] for result in results)
        return Loaded(streams, plan.window[1] - plan.window[0], share)

    async def _end(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self._processes:
            await process.wait()
        self._processes.clear()


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.gpu.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=importing_alike(),
        limit=_LONGEST_LINE,
        # In a session of their own, load processes get no Ctrl-C from the terminal; this process stops them.
        start_new_session=True,
    )  # fmt: skip


async def _send(process: asyncio.subprocess.Process, message: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    await process.stdin.drain()


async def _receive(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise LoadError(f"a load process ended with code {await process.wait()}")
    content: dict[str, Any] = json.loads(line)
    return content

"""One run of the fuzzer: eight clients, batch after batch, and the server's resources before and after."""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from bench.attacks.flood.health import ask_until_stopped
from bench.attacks.flood.separate_process import in_separate_process
from hack.progress import say
from tests.frontend.fuzzing.client import Seen, send_each
from tests.frontend.fuzzing.drawn import Pool, Sending, draw_batch, draw_pool, first_batch
from tests.frontend.fuzzing.server import Fuzzed, Held
from tests.waiting import await_that

CLIENTS = 8
MAX_CALLBACK_SECONDS = 0.010
"""The most processor seconds of our code in one callback of the event loop."""
MAX_GROWTH = 1.1
"""The most memory at the end, relative to that after a third of the time."""
_POOL = 360
"""The number of requests that a run begins with."""
_BATCH = 400
_SAID_EVERY_SECONDS = 5.0
_SPARE_FILES = 4
"""Connections that are not the fuzzer's clients', such as those of this process, come and go."""
_SPARE_THREADS = 8


@dataclass(frozen=True, slots=True)
class LongestCheck:
    """The check of a body in a worker thread that took the most processor time."""

    seconds: float
    parsing_seconds: float
    """Processor seconds of Python's JSON parser for the same body."""
    path: str
    body: str
    """The body in Latin-1: one character for each byte."""


@dataclass(slots=True)
class Result:
    """The findings of a run."""

    seed: int
    seen: Seen = field(default_factory=Seen)
    tracebacks: list[str] = field(default_factory=list)
    longest: list[tuple[float, str]] = field(default_factory=list)
    """Seconds of our callbacks on the event loop, and their actions; the longest first."""
    longest_check: LongestCheck | None = None
    """The longest check of a body; None: no body was checked in a worker thread."""
    health_seconds: list[float] = field(default_factory=list)
    """Seconds of each answer of ``/health``."""
    grown: list[str] = field(default_factory=list)
    """Resources that the server holds afterwards and did not before."""

    @property
    def slow(self) -> list[tuple[float, str]]:
        """The callbacks that took too long."""
        return [each for each in self.longest if each[0] > MAX_CALLBACK_SECONDS]

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.seen.violations or self.tracebacks or self.grown or self.slow)


def fuzz(fuzzed: Fuzzed, seed: int, seconds: float) -> Result:
    """Fuzzes an engine, and shows progress.

    Args:
        fuzzed: the engine.
        seed: equal ones send equal requests, in as many batches as there is time for.
        seconds: how long it goes on after a first batch, whose callbacks and growth do not count: it warms up.
    """
    result = Result(seed)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as drawing:
        say("fuzz", f"seed {seed}: drawing the first requests")
        pool = drawing.submit(draw_pool, fuzzed.description(), seed, _POOL).result()
        batches = _Batches(drawing, pool, seed)
        _send(fuzzed, iter(first_batch(pool, seed)), result)
        _await_rest(fuzzed)
        fuzzed.state(reset=True)
        before = fuzzed.held()
        with in_separate_process("asks for health", partial(ask_until_stopped, fuzzed.url)) as health:
            middle = _send_for(fuzzed, batches, result, seconds)
        result.health_seconds = health.result
    state = fuzzed.state()
    result.longest = [(seconds, what) for seconds, what in state["longest"]]
    check = state["longest_check"]
    result.longest_check = LongestCheck(**check) if check else None
    result.tracebacks = fuzzed.new_tracebacks()
    result.grown = _growth(fuzzed, before, middle)
    return result


class _Batches:
    """Batches of requests; another process draws the next one while one is sent."""

    def __init__(self, drawing: ProcessPoolExecutor, pool: Pool, seed: int) -> None:
        self._drawing, self._pool, self._seed = drawing, pool, seed
        self._count = 0
        self._next = self._draw()

    def next(self) -> list[Sending]:
        """The next batch."""
        batch = self._next.result()
        self._next = self._draw()
        return batch

    def _draw(self) -> Future[list[Sending]]:
        self._count += 1
        return self._drawing.submit(draw_batch, self._pool, self._seed, self._count, _BATCH)


def _send_for(fuzzed: Fuzzed, batches: _Batches, result: Result, seconds: float) -> Held:
    """Sends batches for a number of seconds. Returns the server's resources after a third of them."""
    began = time.monotonic()
    middle: Held | None = None
    while (passed := time.monotonic() - began) < seconds:
        if middle is None and passed > seconds / 3:
            middle = fuzzed.held()
        _send(fuzzed, _until(batches.next(), began + seconds), result)
    return middle or fuzzed.held()


def _until(sendings: list[Sending], deadline: float) -> Iterator[Sending]:
    for sending in sendings:
        if time.monotonic() > deadline:
            return
        yield sending


def _send(fuzzed: Fuzzed, sendings: Iterator[Sending], result: Result) -> None:
    async def send_all() -> None:
        progress = asyncio.create_task(_say_progress(result))
        try:
            await asyncio.gather(*(send_each(fuzzed.host, fuzzed.port, sendings, result.seen) for _ in range(CLIENTS)))
        finally:
            progress.cancel()

    asyncio.run(send_all())
    say("fuzz", _progress(result))


async def _say_progress(result: Result) -> None:
    while True:
        await asyncio.sleep(_SAID_EVERY_SECONDS)
        say("fuzz", _progress(result))


def _progress(result: Result) -> str:
    statuses = ", ".join(f"{count} × {status or 'closed'}" for status, count in result.seen.statuses.most_common())
    return f"{result.seen.statuses.total():,} requests ({statuses}); {len(result.seen.violations)} violations"


def _await_rest(fuzzed: Fuzzed) -> None:
    """Waits until no request is in progress; those of clients that hung up end some time after them."""
    with suppress(TimeoutError):
        await_that(lambda: fuzzed.held().requests == 0, "no request is under way", seconds=60)


def _growth(fuzzed: Fuzzed, before: Held, middle: Held) -> list[str]:
    """Resources that the server holds at the end, and should not.

    Args:
        fuzzed: the server.
        before: its resources after the first batch.
        middle: its resources after a third of the time.
    """

    def find() -> list[str]:
        after = fuzzed.held()
        bounds = {
            "requests": (after.requests, 0),
            "bytes of bodies": (after.body_bytes, 0),
            "tasks": (after.tasks, before.tasks),
            "files": (after.files, before.files + _SPARE_FILES),
            # Thread pools grow with use, up to a size that a short run does not reach by the middle.
            "threads": (after.threads, middle.threads + _SPARE_THREADS),
            "bytes of memory": (after.rss_bytes, int(middle.rss_bytes * MAX_GROWTH)),
        }
        return [f"{count:,} {what}, more than {bound:,}" for what, (count, bound) in bounds.items() if count > bound]

    with suppress(TimeoutError):
        await_that(lambda: not find(), "all that requests held is let go", seconds=60)
    return find()

"""A load process: reads plans from standard input, sends their requests, and writes results to standard output.

Each message is a line of JSON. A plan has a start time in seconds of the monotonic clock, which is the same for all
processes of a machine. The process writes ``{"ready": true}`` when it starts, and ``{"answered": true}`` when all
requests with arrival times are answered. On ``stop`` it abandons the other requests and writes its results.
"""

import asyncio
import itertools
import json
import random
import sys
import time
from typing import Any, Final

import aiohttp

from bench.gpu.plan import Answered, Caller, Plan, Prompts, Stream
from bench.gpu.results import MOST_ERRORS
from bench.gpu.shapes import MODEL

_DATA: Final = b"data: "
_RETRY_SECONDS: Final = 0.2
"""Pause after a failed request of a stream with a fixed number of requests in flight."""
_LONGEST_LINE: Final = 1 << 28
KEPT_CONNECTION_SECONDS: Final = 2.0
"""Time that idle connections are kept; below 5 s, because vLLM then closes them and a request sent then would fail."""


def main() -> None:
    """Run plans until standard input closes."""
    asyncio.run(_serve())


async def _serve() -> None:
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_CONNECTION_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        _write({"ready": True})
        while line := await reader.readline():
            message = json.loads(line)
            await _run(session, _plan(message["plan"]), message["begin"], reader)


async def _run(session: aiohttp.ClientSession, plan: Plan, begin: float, reader: asyncio.StreamReader) -> None:
    cpu = time.process_time()
    senders = {stream.name: _Sender(session, stream, plan.window, begin) for stream in plan.streams}
    async with asyncio.TaskGroup() as closed:
        endless = [closed.create_task(each.keep_asking(slot)) for each in senders.values() for slot in each.slots]
        async with asyncio.TaskGroup() as opened:
            for each in senders.values():
                for number, arrival in enumerate(each.stream.arrivals):
                    opened.create_task(each.ask_at(number, arrival))
        _write({"answered": True})
        await reader.readline()
        for task in endless:
            task.cancel()
    share = (time.process_time() - cpu) / (time.monotonic() - begin)
    _write({"streams": {name: each.result() for name, each in senders.items()}, "cpu_share": share})


class _Sender:
    """Sends the requests of one stream, and counts the tokens and times of their answers."""

    def __init__(
        self, session: aiohttp.ClientSession, stream: Stream, window: tuple[float, float], begin: float
    ) -> None:
        self.stream = stream
        self._session = session
        self._begin = begin
        self._window = (begin + window[0], begin + window[1])
        self._answered = Answered()
        self._numbers = itertools.count(stream.first, stream.step)
        self._rng = random.Random(f"{stream.prompts.seed}/{stream.first}")

    @property
    def slots(self) -> range:
        """Returns a slot for each request that the stream keeps in flight."""
        return range(self.stream.at_once)

    async def ask_at(self, number: int, arrival: float) -> None:
        """Send a request at its arrival time and wait for its answer."""
        prompt = self.stream.prompts.prompt(self.stream.first + number * self.stream.step)
        await asyncio.sleep(self._begin + arrival - time.monotonic())
        await self._ask(prompt, self.stream.answer, keep_times=True)

    async def keep_asking(self, slot: int) -> None:
        """Send one request after the other until cancelled."""
        answer = self._rng.randint(1, self.stream.answer) if self.stream.stagger else self.stream.answer
        await asyncio.sleep(self._begin - time.monotonic())
        while True:
            prompt = self.stream.prompts.prompt(next(self._numbers))
            if not await self._ask(prompt, answer, keep_times=False):
                await asyncio.sleep(_RETRY_SECONDS)
            answer = self.stream.answer

    def result(self) -> dict[str, Any]:
        """Returns the counts."""
        each = self._answered
        return {name: getattr(each, name) for name in Answered.__slots__}

    async def _ask(self, prompt: list[int], answer: int, *, keep_times: bool) -> bool:
        """Send one request; returns whether the answer was complete."""
        counted = self._answered
        caller = self._rng.choice(self.stream.callers)
        body = {
            "model": MODEL, "prompt": prompt, "max_tokens": answer, "ignore_eos": True, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **caller.fields,
        }  # fmt: skip
        sent, times, generated, cached = time.monotonic(), [], 0, 0
        error = ""
        try:
            async with self._session.post(
                f"{self.stream.url}/v1/completions", json=body, headers=caller.headers
            ) as response:
                if response.status != 200:
                    error = f"status {response.status}: {(await response.text())[:200]}"
                async for line in response.content:
                    if not line.startswith(_DATA + b"{"):
                        continue
                    event = json.loads(line.removeprefix(_DATA))
                    if "error" in event:
                        error = str(event["error"])[:200]
                        break
                    usage = event.get("usage") or {}
                    new = usage.get("completion_tokens", 0) - generated
                    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or cached
                    if new > 0:
                        now = time.monotonic()
                        if self._window[0] <= now < self._window[1]:
                            counted.window_generated += new
                            counted.window_tokens += new if generated else new + len(prompt)
                        generated += new
                        times.append(now)
        except aiohttp.ClientError as broken:
            error = f"{type(broken).__name__}: {broken}"
        counted.requests += 1
        if error or generated != answer:
            counted.failed += 1
            if len(counted.errors) < MOST_ERRORS:
                counted.errors.append(error or f"{generated} of {answer} tokens")
            return False
        counted.cached_tokens += cached
        counted.prompt_tokens += len(prompt)
        counted.window_requests += self._window[0] <= times[-1] < self._window[1]
        if keep_times:
            counted.first_token_seconds.append(times[0] - sent)
            counted.token_seconds += [after - before for before, after in itertools.pairwise(times)]
        return True


def _plan(content: dict[str, Any]) -> Plan:
    return Plan(tuple(map(_stream, content["streams"])), tuple(content["window"]))


def _stream(content: dict[str, Any]) -> Stream:
    prompts = Prompts(**content["prompts"])
    callers = tuple(Caller(**caller) for caller in content["callers"])
    return Stream(**{**content, "prompts": prompts, "callers": callers, "arrivals": tuple(content["arrivals"])})


def _write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Sends the two tenants' requests: the quiet tenant's at random times, and the neighbour's without a pause."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

_REFUSED_WAIT_SECONDS = 0.25
"""Wait after a refusal without a Retry-After time."""
_REFUSED = (429, 503)
_DATA = b"data: "
_WORDS = 4000
"""Number of words of the model's vocabulary that prompts use; each word is one token."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """The URL, headers and body fields of a tenant's requests."""

    url: str
    headers: Mapping[str, str]
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes and rates of both tenants' requests."""

    prefix_tokens: int = 128
    """Number of tokens that all prompts of the quiet tenant begin with."""
    own_tokens: int = 64
    answer_tokens: int = 16
    flood_tokens: int = 1500
    flood_answer_tokens: int = 64
    rate: float = 2.0
    """Requests per second of the quiet tenant, which arrive as a Poisson process."""
    requests: int = 100
    """Number of requests of the quiet tenant in each phase."""


@dataclass(slots=True)
class Answer:
    """The arrival times of an answer's pieces, in seconds of ``time.perf_counter``."""

    sent_at: float
    tokens_at: list[float] = field(default_factory=list)
    """Arrival times of non-empty pieces; some servers send an empty piece first."""
    status: int = 200
    refused: int = 0
    """Number of refusals before the request was admitted."""

    @property
    def first_token_seconds(self) -> float:
        return self.tokens_at[0] - self.sent_at

    @property
    def token_seconds(self) -> list[float]:
        """Returns the times between consecutive tokens."""
        return [after - before for before, after in itertools.pairwise(self.tokens_at)]


class AskingError(Exception):
    """The quiet tenant's request failed or ended early, so the measurement is invalid."""


async def ask_quietly(session: aiohttp.ClientSession, tenant: Tenant, shape: Shape, seed: int) -> list[Answer]:
    """Send the quiet tenant's requests at random times, and wait for all answers.

    Raises:
        AskingError: a request was not answered in full.
    """
    rng = random.Random(seed)
    prefix = " ".join(_words(random.Random(0), shape.prefix_tokens))
    asked = []
    async with asyncio.TaskGroup() as tasks:
        for _ in range(shape.requests):
            await asyncio.sleep(rng.expovariate(shape.rate))
            prompt = f"{prefix} {' '.join(_words(rng, shape.own_tokens))}"
            asked.append(tasks.create_task(_ask(session, tenant, prompt, shape.answer_tokens)))
    answers = [task.result() for task in asked]
    for answer in answers:
        if answer.status != 200 or len(answer.tokens_at) != shape.answer_tokens:
            raise AskingError(f"status {answer.status}, {len(answer.tokens_at)} of {shape.answer_tokens} tokens")
    return answers


class Flood:
    """Keeps a number of concurrent requests of the neighbour in flight, with distinct prompts, while it is entered.

    Args:
        session: the HTTP session that sends the requests.
        tenant: the neighbour.
        shape: the shape of the requests.
        at_once: the number of concurrent requests.
        seed: the seed of the prompts.
    """

    def __init__(self, session: aiohttp.ClientSession, tenant: Tenant, shape: Shape, at_once: int, seed: int) -> None:
        self._session = session
        self._tenant = tenant
        self._shape = shape
        self._at_once = at_once
        self._rng = random.Random(seed)
        self._under_way: list[Answer] = []
        self._tokens = 0
        self._answers = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.refused = 0
        """Number of refusals; refused requests are sent again."""

    @property
    def tokens(self) -> int:
        """Number of prompt and answer tokens computed so far; a prompt counts when its answer's first token arrives."""
        return self._tokens + sum(map(self._computed, self._under_way))

    @property
    def answers(self) -> int:
        """Number of complete answers."""
        return self._answers

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """Send requests until the block ends, then abandon all running requests."""
        self._tasks = [asyncio.create_task(self._keep_asking()) for _ in range(self._at_once)]
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def check(self) -> None:
        """Raise the exception of a failed request, if there is one."""
        for task in self._tasks:
            if task.done():
                task.result()

    def _computed(self, answer: Answer) -> int:
        return self._shape.flood_tokens + len(answer.tokens_at) if answer.tokens_at else 0

    async def _keep_asking(self) -> None:
        while True:
            answer = Answer(time.perf_counter())
            self._under_way.append(answer)
            prompt = " ".join(_words(self._rng, self._shape.flood_tokens))
            wait = await _send(self._session, self._tenant, prompt, self._shape.flood_answer_tokens, answer)
            self._under_way.remove(answer)
            self._tokens += self._computed(answer)
            if answer.status == 200:
                self._answers += 1
            else:
                self.refused += 1
                await asyncio.sleep(wait)


async def _ask(session: aiohttp.ClientSession, tenant: Tenant, prompt: str, tokens: int) -> Answer:
    """Send a request, again after each temporary refusal; the answer's times count from the first attempt."""
    answer = Answer(time.perf_counter())
    wait = await _send(session, tenant, prompt, tokens, answer)
    while answer.status in _REFUSED:
        answer.refused += 1
        await asyncio.sleep(wait)
        wait = await _send(session, tenant, prompt, tokens, answer)
    return answer


async def _send(session: aiohttp.ClientSession, tenant: Tenant, prompt: str, tokens: int, answer: Answer) -> float:
    """Send a request and record when tokens arrive; returns the seconds to wait if the request was refused.

    vLLM refuses streamed requests within the stream, after it has sent status 200.
    """
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}
    async with session.post(
        f"{tenant.url}/v1/completions", headers=tenant.headers, json={**body, **tenant.fields}
    ) as response:
        answer.status = response.status
        if response.status != 200:
            return float(response.headers.get("Retry-After", _REFUSED_WAIT_SECONDS))
        async for line in response.content:
            if line.startswith(_DATA + b"{"):
                event = json.loads(line.removeprefix(_DATA))
                if "error" in event:
                    answer.status = int(event["error"]["code"])
                elif _has_text(event):
                    answer.tokens_at.append(time.perf_counter())
    return _REFUSED_WAIT_SECONDS if answer.status in _REFUSED else 0.0


def _has_text(event: Mapping[str, Any]) -> bool:
    choices = event.get("choices")
    return bool(choices and choices[0]["text"])


def _words(rng: random.Random, count: int) -> Iterator[str]:
    return (f"w{rng.randrange(_WORDS)}" for _ in range(count))

"""Sends single greedy requests to an engine, and reads the likeliest tokens at each position of the answer."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.gpu.engines import Engine
from bench.gpu.shapes import MODEL

_DATA: Final = "data: {"


class AnswerError(Exception):
    """An engine refused a request or cut its answer short; the message gives the engine's reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer.

    Attributes:
        tokens: the generated token ids.
        top_logprobs: for each generated token, log probabilities of the likeliest tokens by token id; empty if
            the request asked for none.
        prompt_tokens: the length of the prompt, in tokens.
        cached_tokens: the number of prompt tokens that the engine found cached.
        first_token_seconds: the time from sending the request to the first event with tokens.
    """

    tokens: tuple[int, ...]
    top_logprobs: tuple[Mapping[int, float], ...]
    prompt_tokens: int
    cached_tokens: int
    first_token_seconds: float


async def ask(
    engine: Engine,
    tenant: str,
    prompt: str | Sequence[int],
    tokens: int,
    *,
    model: str = MODEL,
    logprobs: int = 0,
    started: asyncio.Event | None = None,
) -> Answer:
    """Send one request and wait for the whole answer.

    Args:
        engine: the engine that gets the request.
        tenant: the tenant that sends the request.
        prompt: text or token ids.
        tokens: the length of the answer.
        model: the name of the model or of an adapter.
        logprobs: the number of likeliest tokens to return at each position.
        started: an event that is set when the first token arrives.

    Raises:
        AnswerError: the engine refused the request, or the answer is too short.
    """
    body: dict[str, Any] = {
        "model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
        "return_token_ids": True, "stream": True, "stream_options": {"include_usage": True},
        **({"logprobs": logprobs, "return_tokens_as_token_ids": True} if logprobs else {}),
        **engine.fields(tenant),
    }  # fmt: skip
    answered: list[int] = []
    top: list[Mapping[int, float]] = []
    usage: dict[str, Any] = {}
    first = 0.0
    sent = time.perf_counter()
    url, headers = f"{engine.url}/v1/completions", engine.headers(tenant)
    async with engine.client.stream("POST", url, json=body, headers=headers) as response:
        if response.status_code != 200:
            await response.aread()
            raise AnswerError(f"{engine.name} answered with status {response.status_code}: {response.text[:300]}")
        async for line in response.aiter_lines():
            if not line.startswith(_DATA):
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise AnswerError(f"{engine.name} answered {event['error']}")
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                if new := choice.get("token_ids"):
                    first = first or time.perf_counter() - sent
                    answered += new
                    top += _top_logprobs(choice)
                    if started is not None:
                        started.set()
    if len(answered) != tokens:
        raise AnswerError(f"{engine.name} answered {len(answered)} of {tokens} tokens")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Answer(tuple(answered), tuple(top), usage["prompt_tokens"], cached, first)


async def ask_each(
    engine: Engine, tenant: str, prompts: Sequence[str | Sequence[int]], tokens: int, *, logprobs: int = 0
) -> list[Answer]:
    """Send requests one after the other, so that every engine computes them in the same batches.

    Raises:
        AnswerError: the engine refused a request, or an answer is too short.
    """
    return [await ask(engine, tenant, prompt, tokens, logprobs=logprobs) for prompt in prompts]


async def ask_at_once(
    engine: Engine, tenant: str, prompts: Sequence[str | Sequence[int]], tokens: int, *, logprobs: int = 0
) -> list[Answer]:
    """Send requests all at once, so that the engine computes them in common batches.

    Raises:
        AnswerError: the engine refused a request, or an answer is too short.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(engine, tenant, prompt, tokens, logprobs=logprobs)) for prompt in prompts]
    return [task.result() for task in tasks]


def _top_logprobs(choice: Mapping[str, Any]) -> list[Mapping[int, float]]:
    """Returns the likeliest tokens in one choice of an event; the API names each token ``token_id:NUMBER``."""
    places = (choice.get("logprobs") or {}).get("top_logprobs") or []
    return [{int(name.partition(":")[2]): value for name, value in place.items()} for place in places]

"""Requests whose answers are streamed, as a client without special access sees them."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's observation of an answer."""

    seconds: float
    """Seconds from the request to the first token."""
    ended: float
    """Time at which the answer was complete, on this process's clock."""
    cached_tokens: int


async def stream_answer(
    client: httpx.AsyncClient, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Answer:
    """Send a request for a completion and read its whole answer.

    Args:
        client: sends the request; its base URL is the engine's.
        body: the request's fields; this function adds those for an answer that is streamed with its usage.
        headers: the request's headers, in addition to the client's.

    Raises:
        RuntimeError: the engine refuses the request.
    """
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    began = time.perf_counter()
    first = None
    usage: dict[str, Any] = {}
    async with client.stream("POST", "/v1/completions", json=body, headers=headers) as response:
        if response.status_code != 200:
            await response.aread()
            raise RuntimeError(f"the engine answers {response.status_code}: {response.text[:300]}")
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                first = first or time.perf_counter()
                usage = json.loads(line.removeprefix("data: ")).get("usage") or usage
    ended = time.perf_counter()
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Answer(seconds=(first or ended) - began, ended=ended, cached_tokens=cached)

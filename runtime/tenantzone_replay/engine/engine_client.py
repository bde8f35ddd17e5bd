"""A client for an engine's OpenAI API that records when each token arrives."""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp

from tenantzone_replay.traces.load import TraceError
from tenantzone_replay.traces.readers.lines import count, members, whole

_TOKENS: Final = range(10, 200)
"""Token ids for random prompts. Every tokenizer has these ids."""
_PATIENCE: Final = aiohttp.ClientTimeout(total=600, sock_connect=30)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request."""

    sent: float
    """Time at which the request was sent, in seconds on a monotonic clock."""
    tokens: tuple[float, ...]
    """Times at which the chunks of the answer arrived, on the same clock. A chunk has one or more tokens."""
    cached_tokens: int | None
    """Number of prompt tokens that were cached, or None if vLLM runs without ``--enable-prompt-tokens-details``."""

    @property
    def first_token_seconds(self) -> float:
        return self.tokens[0] - self.sent


class EngineClient:
    """A client for an engine's API.

    Args:
        url: the base URL of the API, with or without ``/v1``.
        model: the name of the served model. If empty, the client uses the first model that the engine lists.
        key: the tenant's API key. If empty, the client sends no key.
    """

    def __init__(self, url: str, model: str, key: str) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self.model = model
        self.longest = 0
        """Maximum number of tokens of a request, including its answer, from the engine's ``max_model_len``."""

    async def __aenter__(self) -> Self:
        # No limit on connections, so that the client never delays a request.
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=_PATIENCE, connector=connector)
        try:
            await self._choose_model()
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, prompt: Sequence[int], answer_tokens: int) -> Answer:
        """Send a prompt of token ids, and return the answer, which has exactly ``answer_tokens`` tokens.

        Raises:
            TraceError: the engine can't be reached, refused the request, or returned an invalid or short answer.
        """
        body = {
            "model": self.model, "prompt": list(prompt), "max_tokens": answer_tokens, "min_tokens": answer_tokens,
            "ignore_eos": True, "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        tokens: list[float] = []
        usage: Mapping[str, Any] = {}
        sent = time.perf_counter()
        async with self._asked("POST", "/v1/completions", body) as response:
            url = str(response.url)
            async for line in response.content:
                data = _data(url, line)
                if data.get("choices"):
                    tokens.append(time.perf_counter())
                usage = members(url, data.get("usage") or usage)
        # Prefer the reported usage to the number of chunks, because a chunk may have several tokens.
        came = count(url, usage, "completion_tokens", default=len(tokens)) if tokens else 0
        if came < answer_tokens:
            raise TraceError(
                f"{url} answered with {came} tokens instead of {answer_tokens}, so it ignores ignore_eos or min_tokens "
                "and can't be measured; use the URL of a vLLM engine"
            )
        details = members(url, usage.get("prompt_tokens_details") or {})
        cached = details.get("cached_tokens")
        return Answer(sent, tuple(tokens), None if cached is None else count(url, details, "cached_tokens"))

    async def ask_at_once(self, prompts: Sequence[Sequence[int]], answer_tokens: int) -> list[Answer]:
        """Send all prompts at the same time, and return their answers."""
        return await asyncio.gather(*(self.ask(prompt, answer_tokens) for prompt in prompts))

    async def cache_size(self) -> tuple[int, int]:
        """Returns the number of blocks, and of tokens per block. Both are 0 if the engine does not report them."""
        try:
            async with self._asked("GET", "/metrics") as response:
                text = await response.text(errors="replace")
        except TraceError:
            return 0, 0
        line = next((line for line in text.splitlines() if line.startswith("vllm:cache_config_info{")), "")
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        blocks, tokens = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
        # Subtract one block, because vLLM reserves a block as the null block.
        return (int(blocks) - 1, int(tokens)) if blocks.isdecimal() and tokens.isdecimal() else (0, 0)

    async def _choose_model(self) -> None:
        async with self._asked("GET", "/v1/models") as response:
            url = str(response.url)
            listed = members(url, _json(url, await response.read())).get("data")
        if not isinstance(listed, list) or not listed:
            raise TraceError(f"{url} lists no models; expected a list as in OpenAI's API")
        served = {str(members(url, each).get("id")): each for each in listed}
        self.model = self.model or next(iter(served))
        if self.model not in served:
            raise TraceError(f"{self._url} serves {', '.join(served)}, but not {self.model!r}; change --model")
        self.longest = whole(url, served[self.model], "max_model_len", default=2048)

    @asynccontextmanager
    async def _asked(self, method: str, path: str, body: Any = None) -> AsyncIterator[aiohttp.ClientResponse]:
        url = self._url + path
        try:
            async with self._session.request(method, url, json=body) as response:
                if response.status != 200:
                    said = await response.text(errors="replace")
                    raise TraceError(f"{url} answered with status {response.status}: {said[:300]}")
                yield response
        except TraceError:
            raise
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise TraceError(f"{url}: {str(error) or f'no answer within {_PATIENCE.total:g} s'}") from None


def _data(url: str, line: bytes) -> Mapping[str, Any]:
    """Returns the JSON object in a ``data:`` line of an event stream, or an empty mapping for any other line."""
    if not line.startswith(b"data: {"):
        return {}
    data = members(url, _json(url, line.removeprefix(b"data: ")))
    if data.get("error"):
        raise TraceError(f"{url} ended an answer with an error: {str(data['error'])[:300]}")
    return data


def _json(url: str, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise TraceError(f"{url} sent invalid JSON: {text[:60].decode(errors='replace')!r}") from None


def new_prompt(rng: random.Random, tokens: int) -> list[int]:
    """Returns a random prompt of ``tokens`` tokens. Almost certainly, it shares no block with an earlier prompt."""
    return rng.choices(_TOKENS, k=tokens)

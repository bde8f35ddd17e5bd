"""Asks a user's engine, over its OpenAI API, and says when each token came."""

import asyncio
import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp

from tenantzone_replay.load import TraceError

_TOKENS: Final = range(10, 200)
"""That prompts are made of: numbers that each tokenizer has."""
_PATIENCE: Final = aiohttp.ClientTimeout(total=600)


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's."""

    sent: float
    """Seconds on a clock that only runs forward; so are the next ones."""
    tokens: tuple[float, ...]
    """When each came."""
    cached_tokens: int | None
    """Of the prompt, found in the cache; None: the engine does not say (``--enable-prompt-tokens-details``)."""

    @property
    def first_token_seconds(self) -> float:
        return self.tokens[0] - self.sent


class EngineClient:
    """An engine's API.

    Args:
        url: with or without ``/v1``.
        model: as it is served; empty: the first one that the engine names.
        key: of the tenant who asks; empty: none.
    """

    def __init__(self, url: str, model: str, key: str) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self.model = model
        self.longest = 0
        """Tokens of a request, with its answer."""

    async def __aenter__(self) -> Self:
        # As many connections as there are requests at a time.
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=_PATIENCE, connector=connector)
        try:
            listed = (await self._get("/v1/models"))["data"]
            names = [str(each["id"]) for each in listed]
            self.model = self.model or names[0]
            if self.model not in names:
                raise TraceError(f"{self._url} serves {', '.join(names)}, and no model {self.model!r}")
            self.longest = int(listed[names.index(self.model)].get("max_model_len") or 2048)
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, prompt: Sequence[int], answer_tokens: int) -> Answer:
        """Ask for so many tokens behind these.

        Raises:
            TraceError: it was refused, or the engine can't be reached.
        """
        body = {
            "model": self.model, "prompt": list(prompt), "max_tokens": answer_tokens, "min_tokens": answer_tokens,
            "ignore_eos": True, "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        tokens: list[float] = []
        cached: int | None = None
        sent = time.perf_counter()
        try:
            async with self._session.post(f"{self._url}/v1/completions", json=body) as response:
                if response.status != 200:
                    raise TraceError(f"{self._url} answers {response.status}: {(await response.text())[:300]}")
                async for line in response.content:
                    if not line.startswith(b"data: {"):
                        continue
                    told = json.loads(line[6:])
                    if told.get("choices"):
                        tokens.append(time.perf_counter())
                    if told.get("usage"):
                        details = told["usage"].get("prompt_tokens_details") or {}
                        cached = details.get("cached_tokens", cached)
        except aiohttp.ClientError as error:
            raise TraceError(f"{self._url}: {error}") from None
        if not tokens:
            raise TraceError(f"{self._url} answered without a token")
        return Answer(sent, tuple(tokens), cached)

    async def ask_at_once(self, prompts: Sequence[Sequence[int]], answer_tokens: int) -> list[Answer]:
        """Ask all of it at the same time."""
        return await asyncio.gather(*(self.ask(prompt, answer_tokens) for prompt in prompts))

    async def cache_size(self) -> tuple[int, int]:
        """The engine's blocks and the tokens of each; zeros where it does not say."""
        try:
            async with self._session.get(f"{self._url}/metrics") as response:
                text = await response.text() if response.status == 200 else ""
        except aiohttp.ClientError:
            return 0, 0
        line = next((line for line in text.splitlines() if line.startswith("vllm:cache_config_info{")), "")
        told = dict(re.findall(r'(\w+)="([^"]*)"', line))
        blocks, tokens = told.get("num_gpu_blocks", ""), told.get("block_size", "")
        # One of them vLLM keeps for itself.
        return (int(blocks) - 1, int(tokens)) if blocks.isdecimal() and tokens.isdecimal() else (0, 0)

    async def _get(self, path: str) -> Any:
        try:
            async with self._session.get(self._url + path) as response:
                if response.status != 200:
                    raise TraceError(f"{self._url}{path} answers {response.status}: {(await response.text())[:300]}")
                return await response.json()
        except (aiohttp.ClientError, ValueError) as error:
            raise TraceError(f"{self._url}{path}: {error}") from None


def new_prompt(dice: random.Random, tokens: int) -> list[int]:
    """A prompt of so many tokens that nobody has asked before."""
    return dice.choices(_TOKENS, k=tokens)

"""Requests that these tests send to an engine with the OpenAI client."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import openai

from tenantzone_contract.zone_config.config import ZoneConfig
from tests.engine.real_engine import RealEngine

BLOCK_TOKENS = 32
USABLE_BLOCKS = 63
STEP_TOKENS = 64
"""Tokens of one step: any longer prompt is prefilled in chunks."""

_numbers = itertools.count()


def zone(tenant: str, **fields) -> ZoneConfig:
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def text(blocks: int, title: str | None = None) -> str:
    """A prompt of `blocks` blocks, less its last token: a new one, or the one with this title."""
    story = f"{next(_numbers) if title is None else title}: "
    story += "".join(chr(97 + (number * number + len(story)) % 26) for number in range(blocks * BLOCK_TOKENS))
    return story[: blocks * BLOCK_TOKENS - 1]


def complete(client: openai.OpenAI, prompt: str, tokens: int = 1, *, model: str = "tiny", extra=None, **fields):
    """A greedy completion of exactly `tokens` tokens."""
    body = {"ignore_eos": True, "return_token_ids": True, **(extra or {})}
    fields = {"temperature": 0, **fields}
    return client.completions.create(model=model, prompt=prompt, max_tokens=tokens, extra_body=body, **fields)


def generated(*arguments, **fields) -> list[int]:
    """The tokens of the single answer."""
    return complete(*arguments, **fields).choices[0].token_ids


def cached_tokens(*arguments, **fields) -> int:
    """Prompt tokens found in the cache."""
    return complete(*arguments, **fields).usage.prompt_tokens_details.cached_tokens


class Asked:
    """A request that has reached the engine and is being answered."""

    def __init__(self, engine: RealEngine, tenant: str, prompt: str, tokens: int, **extra) -> None:
        before = _added(engine)
        # In another thread: the answer's headers come with its first token.
        sender = ThreadPoolExecutor(1)
        self._stream = sender.submit(complete, engine.client(tenant), prompt, tokens, extra=extra, stream=True)
        sender.shutdown(wait=False)
        # The engine has the request before any later one is sent.
        engine.wait(lambda: _added(engine) > before, "the request is handed to the engine core")
        self._tokens: list[int] = []

    def answer(self) -> list[int]:
        for chunk in self._stream.result():
            self._take(chunk)
        return self._tokens

    def _take(self, chunk) -> None:
        self._tokens.extend(chunk.choices[0].token_ids or ())

    def abort(self) -> None:
        """Aborts the request; does nothing to a finished one."""
        self._stream.result().close()


def _added(engine: RealEngine) -> int:
    """The number of requests that the API server has logged as sent to its core (``--enable-log-requests``)."""
    return engine.log.read_text(errors="replace").count("Added request ")

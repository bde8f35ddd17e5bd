"""Sends requests to an engine through the OpenAI client, as any application would do."""

import random
import time
from dataclasses import dataclass

from openai import OpenAI

from hack.demo.engines import BLOCK_TOKENS, Engine
from hack.demo.models.model import Model

_PROSE = (
    "the engine keeps blocks of keys and values for each prompt so that a second question about the same text costs "
    "little while other tenants come and go with long documents of their own"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The cache figures of an answer."""

    prompt_tokens: int
    cached_tokens: int
    """Number of prompt tokens that were cached."""
    first_token_seconds: float
    """Time until the first token with text, in seconds."""

    @property
    def prompt_blocks(self) -> int:
        return -(-self.prompt_tokens // BLOCK_TOKENS)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant of one engine, identified by its API key on an engine with zones, and by its salt on stock vLLM."""

    name: str
    client: OpenAI
    model: Model
    cache_salt: str | None = None

    def ask(self, prompt: str, answer_tokens: int = 8) -> Answer:
        """Send a prompt and read the whole answer.

        Raises:
            openai.APIError: the engine refused the request.
        """
        began = time.perf_counter()
        first_token = usage = None
        stream = self.client.chat.completions.create(
            model=self.model.name,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=answer_tokens,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            # Ignore end tokens, which the tiny model may generate at once, so that answers have equal length.
            extra_body={"ignore_eos": True, **({"cache_salt": self.cache_salt} if self.cache_salt else {})},
        )
        for chunk in stream:
            if first_token is None and chunk.choices and chunk.choices[0].delta.content:
                first_token = time.perf_counter() - began
            usage = chunk.usage or usage
        assert usage is not None, "include_usage was asked for"
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
        return Answer(usage.prompt_tokens, cached or 0, first_token or time.perf_counter() - began)


def tenant_with_key(name: str, key: str, engine: Engine, model: Model) -> Tenant:
    """Returns a tenant of an engine with zones, identified by its API key."""
    return Tenant(name, _client(engine, key), model)


def tenant_with_salt(name: str, engine: Engine, model: Model) -> Tenant:
    """Returns a tenant of stock vLLM, which separates the prefixes of tenants only by the salts in requests."""
    return Tenant(name, _client(engine, "none"), model, cache_salt=name)


def _client(engine: Engine, key: str) -> OpenAI:
    return OpenAI(base_url=engine.base_url, api_key=key, timeout=300, max_retries=0)


def make_prompt(model: Model, blocks: int, seed: str) -> str:
    """Returns a text of about ``blocks`` blocks; texts for different seeds have no common prefix."""
    length = int(blocks * BLOCK_TOKENS * model.characters_per_token)
    choose = random.Random(seed).choice
    vocabulary = _PROSE.split()
    words: list[str] = [f"Document {seed}:"]
    size = len(words[0])
    while size < length:
        words.append(choose(vocabulary))
        size += len(words[-1]) + 1
    return " ".join(words)

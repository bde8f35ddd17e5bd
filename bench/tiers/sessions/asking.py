"""Runs sessions of tenants turn by turn, with a tenant that floods the engine between turns."""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx

from bench.end_to_end.engines import Engine

WORDS = 4000


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the load, in which each word is one token."""

    tenants: int = 8
    sessions: int = 2
    """Number of sessions of each tenant."""
    turns: int = 10
    words: int = 86
    """Number of words that each turn adds to the prompt, in addition to the answer."""
    answer: int = 16
    at_once: int = 4
    flood_prompts: int = 8
    """Number of flood prompts between two turns of a session."""
    flood_words: int = 500
    """Number of words in each prompt of the flood; all prompts are unique."""


@dataclass(slots=True)
class Saved:
    """Number of prompt tokens by tenant, and number of cached ones among them."""

    asked: Counter[int] = field(default_factory=Counter)
    cached: Counter[int] = field(default_factory=Counter)

    def share(self, *tenants: int) -> float:
        """Returns the fraction of prompt tokens that were cached, for the given tenants or for all."""
        chosen = tenants or tuple(self.asked)
        return sum(self.cached[each] for each in chosen) / sum(self.asked[each] for each in chosen)


def run_sessions(engine: Engine, shape: Shape, seed: int, *, flooded: bool) -> Saved:
    """Run all sessions, one turn of each in rotation, and count cache hits.

    The flooding tenant has the number after the last session's tenant.
    """
    chance = random.Random(seed)
    saved = Saved()
    sessions = [[tenant, ""] for tenant in range(shape.tenants) for _ in range(shape.sessions)]
    with httpx.Client(base_url=engine.url, timeout=120) as client, ThreadPoolExecutor(shape.at_once) as threads:

        def take_turn(session: list[object], words: str) -> None:
            tenant, text = session
            assert isinstance(tenant, int)
            prompt = f"{text} {words}".strip()
            answer, asked, cached = _ask(client, engine, tenant, prompt, shape.answer)
            session[1] = f"{prompt} {answer}".strip()
            saved.asked[tenant] += asked
            saved.cached[tenant] += cached

        def flood(words: str) -> None:
            _ask(client, engine, shape.tenants, words, 1)

        for _ in range(shape.turns):
            turns = list(_texts(chance, len(sessions), shape.words))
            floods = list(_texts(chance, shape.flood_prompts if flooded else 0, shape.flood_words))
            list(threads.map(take_turn, sessions, turns))
            list(threads.map(flood, floods))
    return saved


def _texts(chance: random.Random, count: int, words: int) -> Iterator[str]:
    for _ in range(count):
        yield " ".join(f"w{chance.randrange(WORDS)}" for _ in range(words))


def _ask(client: httpx.Client, engine: Engine, tenant: int, prompt: str, answer: int) -> tuple[str, int, int]:
    """Send a prompt; returns the answer, the number of prompt tokens, and how many of them were cached."""
    body = {"model": engine.model, "prompt": prompt, "max_tokens": answer, "temperature": 0, "ignore_eos": True}
    headers = engine.headers_of(tenant)
    if not headers:
        # On stock vLLM only the salt separates tenants.
        body["cache_salt"] = f"tenant-{tenant}"
    response = client.post("/v1/completions", json=body, headers=headers)
    response.raise_for_status()
    completion = response.json()
    usage = completion["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return completion["choices"][0]["text"], usage["prompt_tokens"], cached

"""What a prompt's first token takes, and which prompts are asked."""

import json
import random
import time
from typing import Any, Final

import httpx

from bench.end_to_end.engines import Engine

_WORDS: Final = ["river", "stone", "light", "paper", "garden", "window", "winter", "music", "letter", "harbour"]


def first_token(engine: Engine, prompt: str) -> tuple[float, int]:
    """Seconds to the first token of the first tenant's, and how many tokens of the prompt were cached."""
    body: dict[str, Any] = {
        "model": engine.model,
        "prompt": prompt,
        "max_tokens": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    first, cached, began = 0.0, 0, time.perf_counter()
    url, headers = f"{engine.url}/v1/completions", engine.headers_of(0)
    with httpx.stream("POST", url, json=body, headers=headers, timeout=300) as lines:
        lines.raise_for_status()
        for line in lines.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            if event["choices"]:
                first = first or time.perf_counter() - began
            elif event.get("usage"):
                cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
    return first, cached


def prompts_of(count: int, tokens: int) -> list[str]:
    """So many prompts of about so many tokens, which begin differently; the same ones each time."""
    chance = random.Random(1)
    return [" ".join(chance.choices(_WORDS, k=int(tokens * 0.95))) for _ in range(count)]

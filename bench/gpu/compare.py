"""Figures of several answers."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.gpu.answers import Answer


def same(ours: Sequence[Answer], stock: Sequence[Answer]) -> int:
    """How many answers have the same tokens."""
    return sum(one.tokens == other.tokens for one, other in zip(ours, stock, strict=True))


def first_token(answers: Sequence[Answer]) -> float:
    """The median time to the first token in seconds."""
    return statistics.median(answer.first_token_seconds for answer in answers)


def cached_share(answers: Sequence[Answer]) -> float:
    """The share of the prompts' tokens that the engine found cached."""
    return sum(answer.cached_tokens for answer in answers) / sum(answer.prompt_tokens for answer in answers)


def cold_and_cached(
    name: str, cold: Mapping[str, Sequence[Answer]], cached: Mapping[str, Sequence[Answer]]
) -> dict[str, Any]:
    """The columns of an engine's row for prompts that were asked twice.

    Args:
        name: of the engine.
        cold: the first answers by engine, with those of ``stock``.
        cached: the second answers by engine, with those of ``stock``.
    """
    return {
        "answers": len(cold[name]),
        "same as stock, cold": same(cold[name], cold["stock"]),
        "same as stock, cached": same(cached[name], cached["stock"]),
        "cached": cached_share(cached[name]),
        "first token, cold, s": first_token(cold[name]),
        "first token, cached, s": first_token(cached[name]),
    }

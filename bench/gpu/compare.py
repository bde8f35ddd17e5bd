"""Figures computed from several answers."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.gpu.answers import Answer


def same(ours: Sequence[Answer], stock: Sequence[Answer]) -> int:
    """Returns how many answers of ours have the same tokens as stock's answer to the same prompt."""
    return sum(one.tokens == other.tokens for one, other in zip(ours, stock, strict=True))


def first_token(answers: Sequence[Answer]) -> float:
    """Returns the median time to first token, in seconds."""
    return statistics.median(answer.first_token_seconds for answer in answers)


def cached_share(answers: Sequence[Answer]) -> float:
    """Returns the fraction of prompt tokens that the engine found cached."""
    return sum(answer.cached_tokens for answer in answers) / sum(answer.prompt_tokens for answer in answers)


def cold_and_cached(
    name: str, cold: Mapping[str, Sequence[Answer]], cached: Mapping[str, Sequence[Answer]]
) -> dict[str, Any]:
    """Returns the columns of an engine's row for prompts that were sent twice.

    Args:
        name: the name of the engine.
        cold: the first answers by engine, including ``stock``.
        cached: the second answers by engine, including ``stock``.
    """
    return {
        "answers": len(cold[name]),
        "same as stock, cold": same(cold[name], cold["stock"]),
        "same as stock, cached": same(cached[name], cached["stock"]),
        "cached": cached_share(cached[name]),
        "first token, cold, s": first_token(cold[name]),
        "first token, cached, s": first_token(cached[name]),
    }

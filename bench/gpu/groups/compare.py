"""Figures of several answers."""

import statistics
from collections.abc import Sequence

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

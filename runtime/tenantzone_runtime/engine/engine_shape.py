"""What a scheduler without a model is told of its engine and of prompts. vLLM is not imported here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EvictionOrder = Literal["lru", "priority", "random-lru"]
"""Of a stock pool's cached blocks: the oldest first; those of low priority first; the oldest of a few by chance."""


@dataclass(frozen=True, slots=True)
class EngineShape:
    """What an engine is started with."""

    blocks: int
    """That requests can use."""
    block_tokens: int = 16
    seats: int = 256
    """Requests that may run at a time."""
    step_tokens: int = 8192
    """That one step may compute."""
    longest: int = 131_072
    """Tokens of a request, with its answer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is known of a request's text."""

    number: int
    """Of the request: what is not known is told apart by it."""
    tokens: int
    content: Sequence[int]
    """Ids of what it begins with, one for each ``content_tokens``; equal ones mean an equal text up to there."""
    content_tokens: int
    known_tokens: int
    """Up to where the ids tell the text; what comes after it is like no other request's."""

    def block(self, index: int, block_tokens: int) -> tuple[int, int]:
        """What tells the content of one of its blocks, up to whose end all is equal where this is."""
        end = (index + 1) * block_tokens
        if end > self.known_tokens:
            return -self.number - 1, index
        part = (end - 1) // self.content_tokens
        return self.content[part], end - part * self.content_tokens

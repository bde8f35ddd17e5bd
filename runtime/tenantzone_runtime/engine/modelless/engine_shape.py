"""The engine settings and prompts of a scheduler without a model. Importing this module does not import vLLM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EvictionOrder = Literal["lru", "priority", "random-lru"]
"""Eviction order: least recently used, lowest priority first, or the least recently used of a few random blocks."""


@dataclass(frozen=True, slots=True)
class EngineShape:
    """Settings of an engine that affect its scheduler."""

    blocks: int
    """Number of blocks that requests can use."""
    block_tokens: int = 16
    seats: int = 256
    """Maximum number of running requests."""
    step_tokens: int = 8192
    """Maximum number of tokens that one step computes."""
    longest: int = 131_072
    """Maximum number of tokens of a request, including its answer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt without its text: ids show which parts of prompts are equal."""

    number: int
    """Number of the request. It must be unique, because it identifies the text after ``known_tokens``."""
    tokens: int
    content: Sequence[int]
    """Ids of the parts of the text. A part has ``content_tokens`` tokens. Equal ids mean equal text up to its end."""
    content_tokens: int
    known_tokens: int
    """Number of tokens that the ids describe. Later text is equal to no other request's text."""

    def block(self, index: int, block_tokens: int) -> tuple[int, int]:
        """Returns an identity of a block's content. Equal identities mean equal text up to the end of the block."""
        end = (index + 1) * block_tokens
        if end > self.known_tokens:
            return -self.number - 1, index
        part = (end - 1) // self.content_tokens
        return self.content[part], end - part * self.content_tokens

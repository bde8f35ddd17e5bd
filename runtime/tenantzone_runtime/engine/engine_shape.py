"""The engine and prompt data of a scheduler without a model. vLLM is not imported here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EvictionOrder = Literal["lru", "priority", "random-lru"]
"""A stock pool's eviction order: the oldest first, low priority first, or the oldest of a few random ones."""


@dataclass(frozen=True, slots=True)
class EngineShape:
    """The settings that an engine is started with."""

    blocks: int
    """Blocks that requests can use."""
    block_tokens: int = 16
    seats: int = 256
    """Requests that may run at a time."""
    step_tokens: int = 8192
    """Tokens that one step may compute."""
    longest: int = 131_072
    """The maximum tokens of a request, including its answer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The known part of a request's text."""

    number: int
    """The number of the request, which makes its unknown text unique."""
    tokens: int
    content: Sequence[int]
    """Ids of the text's parts, one for each ``content_tokens`` tokens; equal ids mean equal text up to there."""
    content_tokens: int
    known_tokens: int
    """The number of tokens that the ids describe; the text after them equals no other request's."""

    def block(self, index: int, block_tokens: int) -> tuple[int, int]:
        """Returns an identity of a block's content: equal identities mean equal text up to the block's end."""
        end = (index + 1) * block_tokens
        if end > self.known_tokens:
            return -self.number - 1, index
        part = (end - 1) // self.content_tokens
        return self.content[part], end - part * self.content_tokens

"""The chunks that a tier must have for a prompt to be found, in a model with several groups of KV caches.

At the end of a hit each group has what it needs: full attention all chunks from the beginning, a window its last ones.
No request finds what lies beyond a hit.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class HitShape:
    """The groups of a model, as far as they matter for hits.

    Args:
        chunk_tokens: of each group.
        windows: for each group, the most chunks that a hit needs, the last ones; None: all from the beginning.
    """

    chunk_tokens: int
    windows: tuple[int | None, ...]

    @property
    def is_linked(self) -> bool:
        """Whether chunks of several groups are only useful together."""
        return len(self.windows) > 1

    def end(self, tokens: int) -> int:
        """Returns the last place within ``tokens`` at which a hit may end, in tokens."""
        return tokens // self.chunk_tokens * self.chunk_tokens

    def chunks(self, tokens: int) -> int:
        """Returns the most chunks that are loaded for ``tokens`` tokens."""
        length = -(-tokens // self.chunk_tokens)
        return sum(length if window is None else min(length, window) for window in self.windows)

    def tokens_in(self, chunks: int) -> int:
        """Returns the most tokens that are loaded with ``chunks`` chunks."""
        lengths = range(0, (chunks + 1) * self.chunk_tokens, self.chunk_tokens)
        return lengths[bisect_right(lengths, chunks, key=self.chunks) - 1]

    def keys(self, prompt: Sequence[Sequence[Key]], end: int, begin: int = 0) -> list[Key]:
        """Returns the keys that a hit with this end needs; empty if the prompt is shorter.

        Args:
            prompt: for each group, the keys of its chunks from the beginning.
            end: in tokens.
            begin: leading tokens that need nothing, because they are in place.

        Returns:
            First those needed from the beginning, in the order of the prompt: they begin alike for prompts that begin
            alike. Then those that windows need.
        """
        first, length = begin // self.chunk_tokens, end // self.chunk_tokens
        if length <= first or any(len(keys) < length for keys in prompt):
            return []
        groups = list(zip(self.windows, prompt, strict=True))
        whole = [keys[first:length] for window, keys in groups if window is None]
        last = [keys[max(first, length - window) : length] for window, keys in groups if window is not None]
        return [*chain.from_iterable(zip(*whole, strict=True)), *chain.from_iterable(last)]

    def parents(self, end: int) -> list[int]:
        """Returns for each key of a hit from the beginning the index of the key that it depends on; -1: none.

        Keys needed from the beginning form a chain, and each chunk of a window depends on that chain up to it.
        """
        length, whole = end // self.chunk_tokens, self.windows.count(None)
        parents = list(range(-1, length * whole - 1))
        for window in self.windows:
            if window is not None:
                parents += [(index + 1) * whole - 1 for index in range(max(0, length - window), length)]
        return parents

    def longest(self, prompt: Sequence[Sequence[Key]], begin: int, end: int, is_there: Callable[[Key], bool]) -> int:
        """Returns the last place up to ``end`` at which a complete hit ends, in tokens; ``begin`` if there is none.

        Args:
            prompt: for each group, the keys of its chunks from the beginning.
            begin: leading tokens that need nothing.
            end: in tokens.
            is_there: whether the tier has a chunk.
        """
        groups = list(zip(self.windows, prompt, strict=True))
        first, last = begin // self.chunk_tokens, end // self.chunk_tokens
        last = min(last, *(len(keys) for keys in prompt))
        for window, keys in groups:
            if window is None:
                last = next((index for index in range(first, last) if not is_there(keys[index])), last)
        windows = [(window, keys) for window, keys in groups if window is not None]
        widest = max((window for window, _ in windows), default=0)
        index = last - 1
        while index >= max(first, last - widest):
            if all(last - index > window or is_there(keys[index]) for window, keys in windows):
                index -= 1
            else:
                # No hit that ends after this chunk, within the searched range, has its complete window.
                last = index
                index = last - 1
        return max(last, first) * self.chunk_tokens

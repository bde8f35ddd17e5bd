"""The chunks that a tier must have for a hit on a prompt, in a model with several KV cache groups.

A hit can end at a position if each group has the chunks that it needs there: with full attention, all chunks from the
beginning; with a sliding window, the last few chunks. Chunks after the end of a hit are not used.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class HitShape:
    """The properties of a model's KV cache groups that matter for hits.

    Args:
        chunk_tokens: number of tokens in a chunk, equal for all groups.
        windows: for each group, the number of last chunks that a hit needs; None if it needs all from the beginning.
    """

    chunk_tokens: int
    windows: tuple[int | None, ...]

    @property
    def is_linked(self) -> bool:
        """Whether chunks of several groups are only useful together."""
        return len(self.windows) > 1

    def end(self, tokens: int) -> int:
        """Returns the last position within ``tokens`` at which a hit may end, in tokens."""
        return tokens // self.chunk_tokens * self.chunk_tokens

    def chunks(self, tokens: int) -> int:
        """Returns the maximum number of chunks that are loaded for ``tokens`` tokens."""
        length = -(-tokens // self.chunk_tokens)
        return sum(length if window is None else min(length, window) for window in self.windows)

    def tokens_in(self, chunks: int) -> int:
        """Returns the maximum number of tokens that are loaded with ``chunks`` chunks."""
        lengths = range(0, (chunks + 1) * self.chunk_tokens, self.chunk_tokens)
        return lengths[bisect_right(lengths, chunks, key=self.chunks) - 1]

    def keys(self, prompt: Sequence[Sequence[Key]], end: int, begin: int = 0) -> list[Key]:
        """Returns the keys that a hit with this end needs; empty if the prompt is shorter.

        Args:
            prompt: for each group, the keys of its chunks from the beginning.
            end: end of the hit in tokens.
            begin: number of leading tokens that are already in the engine. Their chunks are not needed.

        Returns:
            First the keys of groups that need all chunks of the prompt, in the order of the prompt, so that prompts
            with the same prefix have the same first keys. Then the keys that windows need.
        """
        first, length = begin // self.chunk_tokens, end // self.chunk_tokens
        if length <= first or any(len(keys) < length for keys in prompt):
            return []
        groups = list(zip(self.windows, prompt, strict=True))
        whole = [keys[first:length] for window, keys in groups if window is None]
        last = [keys[max(first, length - window) : length] for window, keys in groups if window is not None]
        return [*chain.from_iterable(zip(*whole, strict=True)), *chain.from_iterable(last)]

    def parents(self, end: int) -> list[int]:
        """Returns, for each key of a hit that begins at 0, the index of the key that it depends on, or -1 for none.

        Keys needed from the beginning form a chain. Each chunk of a window depends on the chain up to its position.
        """
        length, whole = end // self.chunk_tokens, self.windows.count(None)
        parents = list(range(-1, length * whole - 1))
        for window in self.windows:
            if window is not None:
                parents += [(index + 1) * whole - 1 for index in range(max(0, length - window), length)]
        return parents

    def longest(self, prompt: Sequence[Sequence[Key]], begin: int, end: int, is_there: Callable[[Key], bool]) -> int:
        """Returns the last position up to ``end`` at which a complete hit ends; ``begin`` if there is no hit.

        Args:
            prompt: for each group, the keys of its chunks from the beginning.
            begin: number of leading tokens whose chunks are not needed.
            end: last position to consider, in tokens.
            is_there: returns whether the tier has a chunk.
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
                # The window of any later end in the searched range includes this missing chunk, so go on before it.
                last = index
                index = last - 1
        return max(last, first) * self.chunk_tokens

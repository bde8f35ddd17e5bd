"""The hits that the chunks of a disk make up, told by their names: each says which block of its prompt came before."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from tenantzone_runtime.disk.layout import ObjectName
from tenantzone_runtime.zones.hit_shape import HitShape

BEFORE_BYTES: Final = 16
"""Of a block's hash, which tell it from all others of a zone."""
NOTHING_BEFORE: Final = bytes(BEFORE_BYTES)
"""What a prompt's first block has before it."""
_GROUP_BYTES: Final = 4
"""Of a key, which name the group of the model's layers; the rest is the block's hash."""


def befores(keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """What comes before each block of a prompt, by the block's hash.

    Args:
        keys: of one group's chunks from the beginning, each of one block.
    """
    before, found = NOTHING_BEFORE, {}
    for key in keys:
        block = block_of(key)
        found[block] = before
        before = block[:BEFORE_BYTES]
    return found


def block_of(key: bytes) -> bytes:
    """The hash of the block of which a chunk has what one group keeps."""
    return key[:-_GROUP_BYTES]


def find_hits(names: Iterable[ObjectName], shape: HitShape) -> list[list[bytes]]:
    """The hits of which all chunks are there, as keys in the order of `HitShape.keys`.

    A hit all of whose chunks longer ones need is left out: it goes with them.

    Args:
        names: of all that is there of one zone.
        shape: of the model, whose chunks are of one block.
    """
    before: dict[bytes, bytes] = {}
    there: set[bytes] = set()
    for name in names:
        if name.before:
            before[block_of(name.key)] = name.before
            there.add(name.key)
    tree = _Tree(before, there, shape)
    hits: list[list[bytes]] = []
    covered: set[bytes] = set()
    for length, end in sorted(tree.ends, reverse=True):
        # With what it needs at its end all before that is of a longer hit, too.
        if not covered.issuperset(tree.end_of(end, length)):
            hits.append(tree.hit(end, length))
            covered.update(hits[-1])
    return hits


def _key(block: bytes, group: int) -> bytes:
    return block + group.to_bytes(_GROUP_BYTES, "big")


class _Tree:
    """The blocks of a zone's prompts, each behind the one before it."""

    def __init__(self, before: dict[bytes, bytes], there: set[bytes], shape: HitShape) -> None:
        self._shape = shape
        self._there = there
        self._parent: dict[bytes, bytes | None] = {}
        self.ends: list[tuple[int, bytes]] = []
        """Lengths in blocks, and last blocks, of all hits."""
        after: dict[bytes, list[bytes]] = defaultdict(list)
        for block, earlier in before.items():
            after[earlier].append(block)
        nothing = (0,) * len(shape.windows)
        left: list[tuple[bytes, bytes | None, int, tuple[int, ...]]]
        left = [(block, None, 1, nothing) for block in after[NOTHING_BEFORE]]
        while left:
            block, parent, length, runs_before = left.pop()
            if block in self._parent:
                # A name that somebody has made leads back to a block before it.
                continue
            self._parent[block] = parent
            runs = tuple(run + 1 if _key(block, group) in there else 0 for group, run in enumerate(runs_before))
            needs = [length if window is None else min(window, length) for window in shape.windows]
            if any(window is None and run < length for window, run in zip(shape.windows, runs, strict=True)):
                continue
            if all(run >= need for run, need in zip(runs, needs, strict=True)):
                self.ends.append((length, block))
            left += [(each, block, length + 1, runs) for each in after.get(block[:BEFORE_BYTES], ())]

    def end_of(self, end: bytes, length: int) -> list[bytes]:
        """The keys that a hit's windows need, and of full attention the last."""
        needs = [1 if window is None else min(window, length) for window in self._shape.windows]
        path = self._path(end, max(needs))
        return [_key(block, group) for group, need in enumerate(needs) for block in path[len(path) - need :]]

    def hit(self, end: bytes, length: int) -> list[bytes]:
        """All keys that a hit needs."""
        path = self._path(end, length)
        prompt = [[_key(block, group) for block in path] for group in range(len(self._shape.windows))]
        return self._shape.keys(prompt, length * self._shape.chunk_tokens)

    def _path(self, end: bytes, length: int) -> list[bytes]:
        path: list[bytes] = []
        block: bytes | None = end
        while block is not None and len(path) < length:
            path.append(block)
            block = self._parent[block]
        return path[::-1]

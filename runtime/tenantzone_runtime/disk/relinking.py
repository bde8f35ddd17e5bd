"""Reconstructs hits from the names of chunk files. Each name includes the hash of the previous block of the prompt."""

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

from tenantzone_runtime.disk.files.layout import ObjectName
from tenantzone_runtime.zones.tiers.hit_shape import HitShape

BEFORE_BYTES: Final = 16
"""Number of leading bytes of a block's hash that identify it within a zone."""
NOTHING_BEFORE: Final = bytes(BEFORE_BYTES)
"""The predecessor of a prompt's first block."""
_GROUP_BYTES: Final = 4
"""Number of bytes at the end of a key that identify the KV cache group. The rest is the block's hash."""


def befores(keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Returns a mapping from the hash of each block to the shortened hash of the previous block in the prompt.

    Args:
        keys: the keys of one KV cache group's chunks, one for each block, from the beginning of the prompt.
    """
    before, found = NOTHING_BEFORE, {}
    for key in keys:
        block = block_of(key)
        found[block] = before
        before = block[:BEFORE_BYTES]
    return found


def block_of(key: bytes) -> bytes:
    """Returns the block's hash from a chunk's key."""
    return key[:-_GROUP_BYTES]


def suffix_of(group: int) -> bytes:
    """Returns the last bytes of the keys of all chunks in a KV cache group."""
    return group.to_bytes(_GROUP_BYTES, "big")


@dataclass(eq=False, slots=True)
class Block:
    """A block of a prompt, linked to the previous block. Prompts with a common prefix share its blocks."""

    name: bytes
    """Hash of the block."""
    before: "Block | None"
    length: int
    """Length of the prompt up to and including this block, in blocks."""
    runs: tuple[int, ...]
    """For each KV cache group, the number of consecutive chunks on the disk that end with this block."""
    is_end: bool
    """Whether all chunks that a hit ending at this block needs are on the disk."""


@dataclass(frozen=True, slots=True)
class FoundHit:
    """A hit whose chunks are all on the disk.

    The hit stores only its last block instead of a list of chunks, because thousands of hits may share a prefix.
    """

    end: Block
    shape: HitShape

    def blocks(self, known: Container[Block] = ()) -> list[Block]:
        """Returns the hit's blocks in prompt order, beginning after the last block that is in ``known``."""
        return _path(self.end, self.end.length, known)

    def of_beginning(self, block: Block) -> list[bytes]:
        """Returns the keys of the block's chunks in groups without a window. The hit needs them for each block."""
        return [_key(block, group) for group, window in enumerate(self.shape.windows) if window is None]

    def of_windows(self) -> list[bytes]:
        """Returns the keys of the chunks in groups with a window. The hit needs them only for its last blocks."""
        windows = [(group, window) for group, window in enumerate(self.shape.windows) if window is not None]
        return [_key(block, group) for group, window in windows for block in _path(self.end, window)]

    def keys(self) -> list[bytes]:
        """Returns all keys that the hit needs, in the order of `HitShape.keys`."""
        return [*(key for block in self.blocks() for key in self.of_beginning(block)), *self.of_windows()]


def find_hits(names: Iterable[ObjectName], shape: HitShape) -> list[FoundHit]:
    """Returns complete hits, longest first, so that each chunk of any complete hit belongs to a returned hit.

    A hit is left out if other returned hits have all its chunks. Many hits can be left out: if the windows of a
    conversation's turns are adjacent, a hit ends at each block.

    Args:
        names: names of all chunks of one zone.
        shape: hit shape of the model, with chunks of one block.
    """
    hits: list[FoundHit] = []
    covered: set[bytes] = set()
    walked: set[Block] = set()
    for block in sorted(_ends(names, shape), key=lambda block: (block.length, block.name), reverse=True):
        hit = FoundHit(block, shape)
        needed = [_key(block, group) for group in range(len(shape.windows))]
        if block.before is None or not block.before.is_end:
            needed += hit.of_windows()
        # If another hit ends at the previous block, that hit needs all chunks of this hit except those in ``needed``.
        if covered.issuperset(needed):
            continue
        hits.append(hit)
        covered.update(hit.of_windows())
        for each in hit.blocks(walked):
            walked.add(each)
            covered.update(hit.of_beginning(each))
    return hits


def _key(block: Block, group: int) -> bytes:
    return block.name + suffix_of(group)


def _path(end: Block, length: int, known: Container[Block] = ()) -> list[Block]:
    path: list[Block] = []
    block: Block | None = end
    while block is not None and len(path) < length and block not in known:
        path.append(block)
        block = block.before
    return path[::-1]


def _ends(names: Iterable[ObjectName], shape: HitShape) -> list[Block]:
    """Returns the blocks at which hits end."""
    before: dict[bytes, bytes] = {}
    there: set[bytes] = set()
    for name in names:
        if name.before:
            before[block_of(name.key)] = name.before
            there.add(name.key)
    after: dict[bytes, list[bytes]] = defaultdict(list)
    for each, earlier in before.items():
        after[earlier].append(each)
    ends: list[Block] = []
    seen: set[bytes] = set()
    left: list[tuple[bytes, Block | None]] = [(each, None) for each in after[NOTHING_BEFORE]]
    while left:
        each, parent = left.pop()
        if each in seen:
            # Only a forged file name can lead back to a block that was visited.
            continue
        seen.add(each)
        block = _block(each, parent, there, shape)
        if any(window is None and run < block.length for window, run in zip(shape.windows, block.runs, strict=True)):
            continue
        if block.is_end:
            ends.append(block)
        left += [(later, block) for later in after.get(each[:BEFORE_BYTES], ())]
    return ends


def _block(name: bytes, before: Block | None, there: Container[bytes], shape: HitShape) -> Block:
    length = 1 if before is None else before.length + 1
    block = Block(name, before, length, (), False)
    runs = (0,) * len(shape.windows) if before is None else before.runs
    block.runs = tuple(run + 1 if _key(block, group) in there else 0 for group, run in enumerate(runs))
    needs = [length if window is None else min(window, length) for window in shape.windows]
    block.is_end = all(run >= need for run, need in zip(block.runs, needs, strict=True))
    return block

"""Reconstructs hits from the file names of a disk's chunks. Each name has the hash of the prompt's previous block."""

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
    """Returns the predecessor of each block of a prompt, by the block's hash.

    Args:
        keys: the keys of one group's chunks from the beginning of the prompt, one for each block.
    """
    before, found = NOTHING_BEFORE, {}
    for key in keys:
        block = block_of(key)
        found[block] = before
        before = block[:BEFORE_BYTES]
    return found


def block_of(key: bytes) -> bytes:
    """Returns the hash of the block of a chunk."""
    return key[:-_GROUP_BYTES]


def suffix_of(group: int) -> bytes:
    """Returns the suffix of the keys of a group's chunks."""
    return group.to_bytes(_GROUP_BYTES, "big")


@dataclass(eq=False, slots=True)
class Block:
    """A block of a prompt, linked to the previous block. Prompts share the blocks of a common prefix."""

    name: bytes
    """Hash of the block."""
    before: "Block | None"
    length: int
    """Length of the prompt up to and including this block, in blocks."""
    runs: tuple[int, ...]
    """For each group, the number of consecutive present chunks up to and including this block."""
    is_end: bool
    """Whether all chunks are present that a hit ending here needs."""


@dataclass(frozen=True, slots=True)
class FoundHit:
    """A hit whose chunks are all present. It does not list them, since thousands of hits may have a common prefix."""

    end: Block
    shape: HitShape

    def blocks(self, known: Container[Block] = ()) -> list[Block]:
        """Returns the blocks of the hit from the beginning, without known blocks and all blocks before a known one."""
        return _path(self.end, self.end.length, known)

    def of_beginning(self, block: Block) -> list[bytes]:
        """Returns the keys of a block that the hit needs regardless of the block's position."""
        return [_key(block, group) for group, window in enumerate(self.shape.windows) if window is None]

    def of_windows(self) -> list[bytes]:
        """Returns the keys of the last blocks that the windows of the hit need."""
        windows = [(group, window) for group, window in enumerate(self.shape.windows) if window is not None]
        return [_key(block, group) for group, window in windows for block in _path(self.end, window)]

    def keys(self) -> list[bytes]:
        """Returns all keys that the hit needs, in the order of `HitShape.keys`."""
        return [*(key for block in self.blocks() for key in self.of_beginning(block)), *self.of_windows()]


def find_hits(names: Iterable[ObjectName], shape: HitShape) -> list[FoundHit]:
    """Returns complete hits that together cover all chunks that belong to any hit, the longest first.

    As few hits as possible are returned. Other hits are evicted with the returned hits that need their chunks. There
    may be many: if the windows of a conversation's turns are adjacent, a hit ends at each block.

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
        # If a hit ends one block earlier, it needs all other chunks of this hit.
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
            # Only a forged name can lead back to an earlier block.
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

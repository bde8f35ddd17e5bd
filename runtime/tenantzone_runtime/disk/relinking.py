"""The hits that the chunks of a disk make up, told by their names: each says which block of its prompt came before."""

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
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


def suffix_of(group: int) -> bytes:
    """What a chunk's key has behind the block's hash."""
    return group.to_bytes(_GROUP_BYTES, "big")


@dataclass(eq=False, slots=True)
class Block:
    """A block of a prompt, behind the one before it. What prompts have in common at their beginning is there once."""

    name: bytes
    """Its hash."""
    before: "Block | None"
    length: int
    """Of the prompt up to here, in blocks."""
    runs: tuple[int, ...]
    """For each group, how many chunks are there up to this one without a gap."""
    is_end: bool
    """Whether all is there that a hit needs which ends here."""


@dataclass(frozen=True, slots=True)
class FoundHit:
    """A hit of which all chunks are there. It does not list them: thousands of hits may begin alike."""

    end: Block
    shape: HitShape

    def blocks(self, known: Container[Block] = ()) -> list[Block]:
        """Its blocks from the beginning, but those that are known, and all that come before one that is."""
        return _path(self.end, self.end.length, known)

    def of_beginning(self, block: Block) -> list[bytes]:
        """The keys that it needs of a block wherever in the prompt that is."""
        return [_key(block, group) for group, window in enumerate(self.shape.windows) if window is None]

    def of_windows(self) -> list[bytes]:
        """The keys that it needs because of where it ends."""
        windows = [(group, window) for group, window in enumerate(self.shape.windows) if window is not None]
        return [_key(block, group) for group, window in windows for block in _path(self.end, window)]

    def keys(self) -> list[bytes]:
        """All keys that it needs, in the order of `HitShape.keys`."""
        return [*(key for block in self.blocks() for key in self.of_beginning(block)), *self.of_windows()]


def find_hits(names: Iterable[ObjectName], shape: HitShape) -> list[FoundHit]:
    """Hits of which all chunks are there, so that each chunk is of one that is of any, the longest first.

    There are as few as that takes. Others go with those that need their chunks: where the windows of a conversation's
    turns touch, a hit ends at each block.

    Args:
        names: of all that is there of one zone.
        shape: of the model, whose chunks are of one block.
    """
    hits: list[FoundHit] = []
    covered: set[bytes] = set()
    walked: set[Block] = set()
    for block in sorted(_ends(names, shape), key=lambda block: (block.length, block.name), reverse=True):
        hit = FoundHit(block, shape)
        needed = [_key(block, group) for group in range(len(shape.windows))]
        if block.before is None or not block.before.is_end:
            needed += hit.of_windows()
        # What else it needs the hit needs, too, that ends a block earlier.
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
    """The blocks at which hits end."""
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
            # A name that somebody has made leads back to a block before it.
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

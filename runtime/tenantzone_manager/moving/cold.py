"""Finds the least recently used blocks of a storage type, which are candidates for a move to a lower type."""

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tenantzone_manager import spaces
from tenantzone_manager.core import books
from tenantzone_manager.core.records import Block, CacheLocation
from tenantzone_manager.core.settings import Instance
from tenantzone_manager.index.meta_index import MetaIndex
from tenantzone_manager.moving.copier import Source

_ENDS: Final = 256
"""Maximum number of blocks that the search reads from each rank at its beginning."""
_LOOKED_AT: Final = 1024
"""Maximum number of blocks considered in one search."""
TURN: Final = 64
"""Number of blocks after which other tasks may run, because lookups in memory do not suspend a task."""


class Cold(NamedTuple):
    """A block that may move down."""

    instance: Instance
    block: Block
    source: Source


async def coldest(
    index: MetaIndex,
    instances: Sequence[Instance],
    where: str,
    storage: str,
    need: int,
    allowed: Mapping[str, int],
    is_wanted: Callable[[Instance, bytes, Block], bool],
) -> list[Cold]:
    """Returns the least recently used blocks. A block is chosen only after all its child blocks in the type.

    Args:
        index: index with the records.
        instances: instances of the blocks.
        where: storage type.
        storage: storage of the blocks, or empty for all storages of the type.
        need: number of bytes to find. Fewer bytes are returned if not enough blocks are found.
        allowed: maximum number of bytes to choose, by instance.
        is_wanted: returns whether a block may be chosen. If a block may not, no block before it is chosen either.
    """
    by_name = {instance.name: instance for instance in instances}
    left = dict(allowed)
    taken_after: dict[tuple[str, bytes], int] = {}
    chosen: list[Cold] = []
    heap = await _ends(index, [each for each in instances if left.get(each.name, 0) > 0], where)
    for step in range(_LOOKED_AT):
        if step % TURN == 0:
            await asyncio.sleep(0)
        if not heap or need <= 0:
            break
        score, name, key = heapq.heappop(heap)
        instance = by_name[name]
        (entry,) = await index.get(spaces.blocks_of(instance), [key])
        block: Block | None = entry.value if entry is not None else None
        location = _location(block, where, storage)
        if block is None or location is None or location.size > left[name] or not is_wanted(instance, key, block):
            continue
        chosen.append(Cold(instance, block, Source(key, location)))
        left[name] -= location.size
        need -= location.size
        if block.parent:
            await _add_parent(index, heap, instance, block.parent, where, score, taken_after)
    return chosen


async def _ends(index: MetaIndex, instances: Sequence[Instance], where: str) -> list[tuple[float, str, bytes]]:
    """Returns blocks without later blocks in the storage type, as a heap ordered by the time of last use."""
    heap: list[tuple[float, str, bytes]] = []
    for instance in instances:
        for kind in (books.ENDS, books.BORDER):
            ends = await index.lowest(books.ends(kind, instance.name, where), _ENDS)
            heap += [(score, instance.name, key) for key, score in ends]
        await asyncio.sleep(0)
    heapq.heapify(heap)
    return heap


async def _add_parent(
    index: MetaIndex,
    heap: list[tuple[float, str, bytes]],
    instance: Instance,
    key: bytes,
    where: str,
    score: float,
    taken_after: dict[tuple[str, bytes], int],
) -> None:
    """Count one more chosen child of a block, and add the block to the heap once all its children are chosen."""
    at = instance.name, key
    taken_after[at] = taken_after.get(at, 0) + 1
    (entry,) = await index.get(spaces.blocks_of(instance), [key])
    if entry is not None and entry.value.children.get(where) == taken_after[at]:
        heapq.heappush(heap, (max(score, entry.value.used_at), *at))


def _location(block: Block | None, where: str, storage: str) -> CacheLocation | None:
    some = block.serving() if block is not None else ()
    return next((each for each in some if each.type == where and storage in ("", each.storage)), None)

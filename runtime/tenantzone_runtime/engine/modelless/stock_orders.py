"""Alternative eviction orders for a stock pool: by priority, and random LRU.

Each order is a class that replaces vLLM's queue of free blocks, and implements the methods that a pool calls.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence

from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.sched.scheduler import Scheduler

from tenantzone_runtime.engine.modelless.block_hashes import owner_of
from tenantzone_runtime.engine.modelless.engine_shape import EvictionOrder

SAMPLES = 5
"""Number of random blocks among which the least recently used is evicted, as in Redis (``maxmemory-samples``)."""


def change_order(scheduler: Scheduler, order: EvictionOrder, priority_of: Callable[[int], int]) -> None:
    """Change the eviction order of a stock scheduler's blocks.

    Args:
        scheduler: a scheduler that has not got any requests yet.
        order: the new order.
        priority_of: returns an owner's priority. Smaller values are served first, as in vLLM.
    """
    pool = scheduler.kv_cache_manager.block_pool
    free = pool.free_block_queue.get_all_free_blocks()
    if order == "priority":
        pool.free_block_queue = ByPriority(free, priority_of)
    elif order == "random-lru":
        pool.free_block_queue = OldestOfFew(free)


class _Free:
    """A queue of free blocks, from which blocks without content are taken first."""

    def __init__(self, blocks: Sequence[KVCacheBlock]) -> None:
        self._empty = {block.block_id: block for block in reversed(blocks)}
        self.num_free_blocks = len(blocks)

    def popleft(self) -> KVCacheBlock:
        self.num_free_blocks -= 1
        return self._empty.popitem()[1] if self._empty else self._pop()

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        return [self.popleft() for _ in range(n)]

    def remove(self, block: KVCacheBlock) -> None:
        self.num_free_blocks -= 1
        if self._empty.pop(block.block_id, None) is None:
            self._take(block)

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        self.num_free_blocks += len(blocks)
        for block in blocks:
            self._keep(block)

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        self.num_free_blocks += len(blocks)
        self._empty.update((block.block_id, block) for block in blocks)

    def _pop(self) -> KVCacheBlock:
        raise NotImplementedError

    def _take(self, block: KVCacheBlock) -> None:
        raise NotImplementedError

    def _keep(self, block: KVCacheBlock) -> None:
        raise NotImplementedError


class ByPriority(_Free):
    """Evicts blocks of the lowest priority first, and among blocks of equal priority the least recently used block.

    SGLang's radix cache evicts leaves in this order with ``--radix-eviction-policy priority``. A block pool need not
    look for leaves, because vLLM releases the end of a prompt before its beginning.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock], priority_of: Callable[[int], int]) -> None:
        super().__init__(blocks)
        self._priority_of = priority_of
        self._levels: dict[int, OrderedDict[int, KVCacheBlock]] = {}

    def _pop(self) -> KVCacheBlock:
        last = max(priority for priority, level in self._levels.items() if level)
        return self._levels[last].popitem(last=False)[1]

    def _take(self, block: KVCacheBlock) -> None:
        del self._levels[self._priority(block)][block.block_id]

    def _keep(self, block: KVCacheBlock) -> None:
        self._levels.setdefault(self._priority(block), OrderedDict())[block.block_id] = block

    def _priority(self, block: KVCacheBlock) -> int:
        return self._priority_of(owner_of(block.block_hash))


class OldestOfFew(_Free):
    """Evicts the least recently used of a few random cached blocks, like Redis."""

    def __init__(self, blocks: Sequence[KVCacheBlock]) -> None:
        super().__init__(blocks)
        self._rng = random.Random(1)
        self._blocks: list[KVCacheBlock] = []
        self._place: dict[int, int] = {}
        self._used: dict[int, int] = {}
        self._uses = 0

    def _pop(self) -> KVCacheBlock:
        few = self._rng.choices(self._blocks, k=SAMPLES)
        oldest = min(few, key=lambda block: self._used[block.block_id])
        self._take(oldest)
        return oldest

    def _take(self, block: KVCacheBlock) -> None:
        place, last = self._place.pop(block.block_id), self._blocks.pop()
        if last is not block:
            self._blocks[place] = last
            self._place[last.block_id] = place

    def _keep(self, block: KVCacheBlock) -> None:
        self._uses += 1
        self._used[block.block_id] = self._uses
        self._place[block.block_id] = len(self._blocks)
        self._blocks.append(block)

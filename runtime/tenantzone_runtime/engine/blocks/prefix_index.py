"""Prefix indexes for a zone without prefixes, and for a zone that is being purged."""

from collections.abc import Callable

from vllm.v1.core.block_pool import BlockHashToBlockMap
from vllm.v1.core.kv_cache_utils import BlockHashWithGroupId, KVCacheBlock


class NoPrefixes(BlockHashToBlockMap):
    """A prefix index that finds nothing. The first write creates a real index.

    Args:
        begin: creates and returns the index of the pool's current zone.
    """

    def __init__(self, begin: Callable[[], BlockHashToBlockMap]) -> None:
        super().__init__()
        self._begin = begin

    def insert(self, key: BlockHashWithGroupId, block: KVCacheBlock) -> None:
        self._begin().insert(key, block)


class PurgedIndex(BlockHashToBlockMap):
    """A prefix index that hides blocks from before a purge. Lookups do not find these blocks, but ``pop`` does.

    Args:
        withdrawn: the zone's index before the purge.
    """

    def __init__(self, withdrawn: BlockHashToBlockMap) -> None:
        super().__init__()
        self._withdrawn = withdrawn
        self.found = BlockHashToBlockMap()
        """Index of the blocks that were inserted after the purge began."""

    def get_one_block(self, key: BlockHashWithGroupId) -> KVCacheBlock | None:
        return self.found.get_one_block(key)

    def contain(self, key: BlockHashWithGroupId, block_id: int) -> bool:
        return bool(self.found.contain(key, block_id))

    def insert(self, key: BlockHashWithGroupId, block: KVCacheBlock) -> None:
        self.found.insert(key, block)

    def pop(self, key: BlockHashWithGroupId, block_id: int) -> KVCacheBlock | None:
        block = self.found.pop(key, block_id)
        return block if block is not None else self._withdrawn.pop(key, block_id)

    def __len__(self) -> int:
        return len(self.found) + len(self._withdrawn)

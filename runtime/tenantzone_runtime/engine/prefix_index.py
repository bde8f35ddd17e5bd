"""The prefix index of a zone that has no prefixes."""

from collections.abc import Callable

from vllm.v1.core.block_pool import BlockHashToBlockMap
from vllm.v1.core.kv_cache_utils import BlockHashWithGroupId, KVCacheBlock


class NoPrefixes(BlockHashToBlockMap):
    """A prefix index that finds nothing. The first write creates a real index.

    Args:
        begin: creates and returns the index of the zone that the pool acts for.
    """

    def __init__(self, begin: Callable[[], BlockHashToBlockMap]) -> None:
        super().__init__()
        self._begin = begin

    def insert(self, key: BlockHashWithGroupId, block: KVCacheBlock) -> None:
        self._begin().insert(key, block)

"""vLLM's block pool, with an owner for each block.

The stock free queue contains the blocks without an owner: free blocks, and cached blocks of requests that arrived
before the first zone was declared. Each zone has a separate eviction order and prefix index, so a lookup can't find
another zone's blocks. If no zone is declared, every method behaves like vLLM's method.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from vllm.v1.core.block_pool import BlockHashToBlockMap, BlockPool
from vllm.v1.core.kv_cache_utils import BlockHash, BlockHashWithGroupId, KVCacheBlock
from vllm.v1.request import Request

from tenantzone_contract.reports.words import EvictionReason
from tenantzone_runtime.engine.blocks.prefix_index import NoPrefixes, PurgedIndex
from tenantzone_runtime.engine.blocks.requests import may_be_cached, zone_of
from tenantzone_runtime.engine.errors import ForeignBlockError
from tenantzone_runtime.zones.blocks import purging, states
from tenantzone_runtime.zones.blocks.eviction import Evictions, make_room, trim_to_limit
from tenantzone_runtime.zones.config.configure import discard_if_gone
from tenantzone_runtime.zones.model.parts import slices
from tenantzone_runtime.zones.model.zone import Purge, Zone
from tenantzone_runtime.zones.tenancy import Tenancy


class PoolView:
    """A view of a block pool for one zone. When blocks are allocated, it also describes the request that needs them.

    Args:
        pool: the pool.
        zone: the zone, or None for the blocks that no zone owns.
    """

    __slots__ = ("_before", "_pool", "growing", "peak", "spare", "zone")

    def __init__(self, pool: "ZoneBlockPool", zone: Zone | None) -> None:
        self._pool = pool
        self.zone = zone
        self.growing = False
        """Whether the request is already running."""
        self.peak = 0
        """Maximum number of blocks that the request can ever use."""
        self.spare: Sequence[KVCacheBlock] = ()
        """Blocks that the request already holds outside its tables. They are allocated to it before other blocks."""

    def __enter__(self) -> Self:
        self._before, self._pool.view = self._pool.view, self
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.view = self._before


class ZoneBlockPool(BlockPool):
    """A block pool whose methods act for the zone of the current view, or for no zone.

    vLLM's cache manager does not pass a request when it asks the pool for blocks. So ``ZoneKVCacheManager`` enters the
    view ``for_zone(zone)`` around every operation on a request. In a zone's view, ``get_num_free_blocks`` returns the
    number of blocks that this zone may take, so vLLM's checks become quota checks.
    """

    view: PoolView
    """The current view: the innermost view that was entered. Between operations, it is a view for no zone."""

    front: Callable[[Zone], Request]
    """Returns the next waiting request of a zone. The zone must have a waiting request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._unowned_index = BlockHashToBlockMap()
        self._index: dict[Zone, BlockHashToBlockMap] = {}
        """Prefix index of each zone. An empty index is deleted, because its hash table would never shrink."""
        self._purges: dict[Zone, Purge] = {}
        """Purge in progress, by zone."""
        self._no_prefixes = NoPrefixes(self._begin_index)
        self.view = PoolView(self, None)
        super().__init__(*args, **kwargs)
        self.tenancy = Tenancy(self.num_gpu_blocks, self.capacity, time.monotonic())
        self.ledger = self.tenancy.ledger
        self.zones = self.ledger.zones
        """Zones by tenant. If there are none, every method behaves like vLLM's method."""
        self.ledger.departures.append(self._zone_is_gone)

    @property
    def capacity(self) -> int:
        """Number of blocks that requests can use: all blocks except vLLM's null block."""
        return int(self.num_gpu_blocks) - 1

    @property
    def cached_block_hash_to_block(self) -> BlockHashToBlockMap:
        """Prefix index of the current view's zone. vLLM reads and sets this attribute."""
        zone = self.view.zone
        return self._unowned_index if zone is None else self._index.get(zone, self._no_prefixes)

    @cached_block_hash_to_block.setter
    def cached_block_hash_to_block(self, index: BlockHashToBlockMap) -> None:
        zone = self.view.zone
        if zone is None:
            self._unowned_index = index
        else:
            self._index[zone] = index

    def _begin_index(self) -> BlockHashToBlockMap:
        zone = self.view.zone
        assert zone is not None, "requests outside of zones use a separate index"
        index = self._index[zone] = BlockHashToBlockMap()
        return index

    def for_zone(self, zone: Zone | None) -> PoolView:
        """Returns a view of the pool for a zone, or for the blocks that no zone owns. Use it in a ``with`` statement.

        Before you allocate blocks for a request, set the view's other attributes.
        """
        return PoolView(self, zone)

    def available_to(self, zone: Zone, *, growing: bool = False, peak: int = 0) -> int:
        """Returns the number of blocks that a zone may take now, including its own cached blocks.

        Args:
            zone: the zone.
            growing: whether the blocks are for a running request.
            peak: the maximum number of blocks that the request can ever use.
        """
        return self.ledger.totals.takeable(zone, self.free_block_queue.num_free_blocks, growing=growing, peak=peak)

    def get_num_free_blocks(self) -> int:
        """Returns how many blocks the current view's zone may take. Without a zone, counts all unused blocks."""
        view = self.view
        if view.zone is not None:
            return self.available_to(view.zone, growing=view.growing, peak=view.peak) + len(view.spare)
        free: int = self.free_block_queue.num_free_blocks
        return free + self.ledger.cached_blocks

    def adopt_blocks(self, zone: Zone) -> None:
        """Make a zone the owner of all blocks in use, whose requests arrived before zones were declared.

        Cached blocks that no request uses stay in the free queue, where lookups no longer find them.
        """
        used = [block for block in self.blocks if block.ref_cnt > 0 and not block.is_null]
        index = self._index[zone] = BlockHashToBlockMap()
        for block in used:
            if block.block_hash is not None:
                # A block in which prompts end has several hashes.
                for block_hash in (block.block_hash, *self.cached_block_hashes_by_block.get(block.block_id, ())):
                    if self._unowned_index.pop(block_hash, block.block_id) is not None:
                        index.insert(block_hash, block)
        self.ledger.take(zone, [block.block_id for block in used])

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take blocks for the current view's zone. If too few are free, evict blocks that the zone core selects."""
        view = self.view
        if view.zone is None:
            return super().get_new_blocks(num_blocks)
        if not view.spare:
            return self._take_free(num_blocks, view.zone)
        spare = view.spare[:num_blocks]
        taken = self._take_free(num_blocks - len(spare), view.zone)
        view.spare = view.spare[len(spare) :]
        return [*spare, *taken]

    def _take_free(self, num_blocks: int, zone: Zone) -> list[KVCacheBlock]:
        self.return_all_evicted(make_room(self.ledger, zone, num_blocks, self.free_block_queue.num_free_blocks))
        # vLLM's method also takes blocks that were cached before the first zone, so it must use the unowned index.
        with self.for_zone(None):
            blocks = super().get_new_blocks(num_blocks)
        self._hand_over(blocks, zone)
        return blocks

    def _hand_over(self, blocks: list[KVCacheBlock], zone: Zone) -> None:
        """Make a zone the owner of free blocks.

        Raises:
            ForeignBlockError: a block already has an owner. That block is never used again, but the others are freed.
        """
        owner = self.ledger.owner
        block_ids = [block.block_id for block in blocks]
        for block_id in block_ids:
            if owner[block_id] is not None:
                super().free_blocks([block for block in blocks if owner[block.block_id] is None])
                raise ForeignBlockError(block_id, zone)
        self.ledger.take(zone, block_ids)

    def cache_full_blocks(
        self,
        request: Request,
        blocks: list[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Add a request's full blocks to the prefix index of its zone, unless the blocks must not be cached."""
        if self._keeps(request, num_cached_blocks * block_size):
            with self.for_zone(zone_of(request)):
                super().cache_full_blocks(
                    request, blocks, num_cached_blocks, num_full_blocks, block_size, *args, **kwargs
                )

    def cache_partial_block(
        self, request: Request, block: KVCacheBlock, num_tokens: int, *args: Any, **kwargs: Any
    ) -> BlockHashWithGroupId | None:
        """Add a partly filled block to the prefix index, or remove its earlier hashes if it must not be cached."""
        with self.for_zone(zone_of(request)):
            if self._keeps(request, num_tokens - self.hash_block_size):
                cached: BlockHashWithGroupId | None = super().cache_partial_block(
                    request, block, num_tokens, *args, **kwargs
                )
                return cached
            if not block.is_null:
                self._maybe_evict_cached_block(block)
            return None

    def _keeps(self, request: Request, num_tokens: int) -> bool:
        """Returns whether a request's computed blocks may be cached.

        If so, and the zone's next waiting request has the same prefix, the arbiter reconsiders the waiting request.
        """
        zone = zone_of(request)
        if zone is None:
            return True
        if not may_be_cached(request, zone):
            return False
        if zone.backoff_ticket and _begin_alike(request, self.front(zone), num_tokens // self.hash_block_size):
            self.ledger.totals.reconsider(zone)
        return True

    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Use cached blocks for a request whose prefix they contain.

        Raises:
            ForeignBlockError: a block does not belong to the current view's zone. In that case, nothing has changed.
        """
        zone = self.view.zone
        if zone is None:
            return super().touch(blocks)
        owner = self.ledger.owner
        hits = []
        for block in blocks:
            if owner[block.block_id] is not zone and not block.is_null:
                raise ForeignBlockError(block.block_id, zone)
        for block in blocks:
            if block.is_null:
                # Only some versions of vLLM count references to the null block.
                super().touch((block,))
                continue
            if block.ref_cnt == 0:
                hits.append(block.block_id)
            block.ref_cnt += 1
            if self.metrics_collector:
                self.metrics_collector.on_block_accessed(block)
        if hits:
            self.ledger.reuse(zone, hits)
        return None

    def cached_blocks(self, tenant: str, hashes: Iterable[BlockHash]) -> list[int] | None:
        """Returns the ids of the blocks with these hashes that a tenant's zone caches. Supports one KV cache group.

        Returns None if the tenant has no zone, or if one of the blocks is not cached or is in use by a request.
        """
        zone, block_ids = self.zones.get(tenant), []
        if zone is None:
            return None
        with self.for_zone(zone):
            for block_hash in hashes:
                found = self.get_cached_block(block_hash, [0])
                if found is None or found[0].block_id not in zone.cached:
                    return None
                block_ids.append(int(found[0].block_id))
        return block_ids

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """Release blocks that requests of any zones have used. Earlier blocks in the order will be evicted earlier."""
        if not self.zones:
            return super().free_blocks(ordered_blocks)
        owner = self.ledger.owner
        unowned: list[KVCacheBlock] = []
        kept: list[int] = []
        dropped: list[KVCacheBlock] = []
        current: Zone | None = None
        for block in ordered_blocks:
            zone = owner[block.block_id]
            if zone is None:
                unowned.append(block)
                continue
            # All blocks of a request belong to its zone, but vLLM may release blocks of several requests in one call.
            if zone is not current:
                self._release(current, kept, dropped)
                current, kept, dropped = zone, [], []
            block.ref_cnt -= 1
            if block.ref_cnt > 0:
                continue
            if block.block_hash is None or not self.enable_caching or zone.leaving:
                dropped.append(block)
            else:
                kept.append(block.block_id)
        self._release(current, kept, dropped)
        if unowned:
            super().free_blocks(unowned)
        return None

    def _release(self, zone: Zone | None, kept: list[int], dropped: list[KVCacheBlock]) -> None:
        if zone is None:
            return
        self.ledger.release(zone, kept, [block.block_id for block in dropped])
        if dropped:
            self._forget(zone, dropped)
        # The zone may exceed its limit if the limit was lowered while the blocks were in use.
        self.return_evicted(zone, trim_to_limit(self.ledger, zone))

    def evict(self, zone: Zone, reason: EvictionReason, at_most: int | None = None) -> int:
        """Evict a zone's cached blocks, but at most ``at_most`` blocks. Returns the number of evicted blocks."""
        blocks = len(zone.cached) if at_most is None else min(at_most, len(zone.cached))
        block_ids = self.ledger.evict(zone, blocks, reason)
        self.return_evicted(zone, block_ids)
        return len(block_ids)

    def return_evicted(self, owner: Zone, block_ids: list[int]) -> None:
        """Free blocks that the ledger has evicted from a zone, and remove them from the zone's prefix index."""
        if block_ids:
            self._forget(owner, [self.blocks[block_id] for block_id in block_ids])
            states.blocks_evicted(self.ledger, owner)
        if owner.leaving:
            discard_if_gone(self.ledger, owner)

    def return_all_evicted(self, evictions: Evictions) -> None:
        """Call ``return_evicted`` for each zone from which the ledger has evicted blocks."""
        for owner, block_ids in evictions:
            self.return_evicted(owner, block_ids)

    def _forget(self, owner: Zone, blocks: list[KVCacheBlock]) -> None:
        with self.for_zone(owner):
            for block in blocks:
                block_hash = block.block_hash
                self._maybe_evict_cached_block(block)
                if owner.backoff_ticket and block_hash and self.cached_block_hash_to_block.get_one_block(block_hash):
                    # Another block in use has this prefix, so a waiting request with this prefix needs fewer blocks.
                    self.ledger.totals.reconsider(owner)
        self.free_block_queue.prepend_n(blocks)
        self._tidy_index(owner)

    def _tidy_index(self, owner: Zone) -> None:
        index = self._index.get(owner)
        if index is not None and not len(index):
            del self._index[owner]

    def _zone_is_gone(self, zone: Zone) -> None:
        # If the index still contains blocks that were just evicted, `_forget` deletes the index after these blocks.
        self._tidy_index(zone)
        self._purges.pop(zone, None)

    def withdraw(self, zone: Zone) -> None:
        """Hide all prefixes of a zone from lookups if a purge of the zone has begun since the last call."""
        purge = zone.purge
        if purge is None or not purging.is_under_way(zone) or self._purges.get(zone) is purge:
            return
        self._purges[zone] = purge
        if zone in self._index:
            self._index[zone] = PurgedIndex(self._index[zone])

    def forget_withdrawn(self, at_once: int) -> Iterator[None]:
        """Remove the hashes of withdrawn prefixes from their blocks, and free those blocks that no request uses.

        The generator pauses after every ``at_once`` blocks of the engine. During a pause, any state may change.
        """
        owner = self.ledger.owner
        for part in slices(self.blocks, at_once) if self._purges else ():
            left_behind: dict[Zone, list[int]] = {}
            for block in part:
                zone = owner[block.block_id]
                if zone not in self._purges or not self._is_withdrawn(zone, block):
                    continue
                if block.ref_cnt > 0:
                    self._purges[zone].withdrawn += 1
                    with self.for_zone(zone):
                        self._maybe_evict_cached_block(block)
                else:
                    left_behind.setdefault(zone, []).append(block.block_id)
            for zone, block_ids in left_behind.items():
                purging.evict_left_behind(self.ledger, zone, block_ids)
                self.return_evicted(zone, block_ids)
            yield
        for zone in self._purges:
            index = self._index.get(zone)
            while isinstance(index, PurgedIndex):
                self._index[zone] = index = index.found
            self._tidy_index(zone)
        self._purges.clear()

    def _is_withdrawn(self, zone: Zone, block: KVCacheBlock) -> bool:
        """Returns whether a purge of the zone has hidden this block of the zone from lookups."""
        index = self._index.get(zone)
        if block.block_hash is None or not isinstance(index, PurgedIndex):
            return False
        return not index.contain(block.block_hash, block.block_id)

    def forget_in_use(self, zone: Zone, at_once: int) -> Iterator[None]:
        """Remove the hashes of blocks that a zone's requests use, so that these blocks are not cached after use.

        The generator pauses after every ``at_once`` blocks of the engine. During a pause, any state may change.
        """
        owner = self.ledger.owner
        for part in slices(self.blocks, at_once):
            with self.for_zone(zone):
                for block in part:
                    if owner[block.block_id] is zone and block.ref_cnt > 0:
                        self._maybe_evict_cached_block(block)
            yield
        self._tidy_index(zone)

    def evict_blocks(self, block_ids: set[int]) -> None:
        """Remove the hashes of blocks of any zones, and free those blocks that no request uses."""
        owner = self.ledger.owner
        owned = {block_id for block_id in block_ids if owner[block_id] is not None}
        super().evict_blocks(block_ids - owned)
        for block_id in owned:
            zone = owner[block_id]
            assert zone is not None
            if block_id in zone.cached:
                self.ledger.evict_block(zone, block_id, "reset")
                self.return_evicted(zone, [block_id])
            else:
                with self.for_zone(zone):
                    self._maybe_evict_cached_block(self.blocks[block_id])

    def reset_prefix_cache(self) -> bool:
        """Evict all cached blocks of all zones. As in stock vLLM, returns False if a request holds blocks."""
        if self.get_num_free_blocks() == self.capacity:
            for zone in list(self.ledger.zones.values()):
                self.evict(zone, "reset")
        return bool(super().reset_prefix_cache())


def _begin_alike(request: Request, other: Request, num_hashes: int) -> bool:
    """Returns whether two requests have equal content up to the end of the block with index ``num_hashes``.

    Comparing one hash suffices, because the hash of a block also covers all earlier blocks.
    """
    hashes, others = request.block_hashes, other.block_hashes
    return num_hashes < min(len(hashes), len(others)) and hashes[num_hashes] == others[num_hashes]

"""Removal of blocks by RemoveCache, TrimCache and eviction. Removed blocks become unreadable, and are deleted later."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.changing import change_blocks
from tenantzone_manager.core import books
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.heat import frequency
from tenantzone_manager.core.reclaiming import Candidate, Removed, choose
from tenantzone_manager.core.records import RECORDS, Block, CacheLocation
from tenantzone_manager.core.settings import EvictionPolicy, Instance
from tenantzone_manager.core.writing import leave
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.timing import Timing
from tenantzone_manager.turns import IN_BACKGROUND, WRITE_AT_ONCE, Turns, caller_of

AT_ONCE: Final = WRITE_AT_ONCE
"""Maximum number of blocks in one commit."""
NO_END: Final = 2**63

OnRemoved = Callable[[Instance, str, Sequence[bytes]], None]
"""Called after blocks were taken out of service.

The arguments are the instance, the storage type (empty for all types) and at most ``AT_ONCE`` keys.
"""


def _nobody(_instance: Instance, _where: str, _keys: Sequence[bytes]) -> None:
    """Does nothing."""


@dataclass(frozen=True, slots=True)
class Order:
    """The selection of locations to evict, and their order."""

    where: str
    """Storage type of the locations."""
    policy: EvictionPolicy = "LRU"
    unused_since: float = float("inf")
    """Unix time. Blocks that were used after this time are not evicted."""
    storage: str = ""
    """Storage of the locations, or empty for all storages of the type."""

    def takes(self, location: CacheLocation) -> bool:
        """Returns whether a location is in the selected storages."""
        return location.type == self.where and self.storage in ("", location.storage)

    def score(self, block: Block) -> float:
        """Returns the block's score. Blocks with lower scores are evicted first."""
        return block.used_at if self.policy == "LRU" else frequency(block)


class Remover:
    """Takes blocks out of service.

    Args:
        index: records of blocks.
        timing: time limits of readers.
        turns: makes removals of many blocks wait for their turns.
        clock: returns Unix time.
    """

    def __init__(self, index: MetaIndex, timing: Timing, turns: Turns, clock: Callable[[], float]) -> None:
        self._index = index
        self._timing = timing
        self._turns = turns
        self._clock = clock

    async def remove_cache(self, instance: Instance, keys: Sequence[bytes], on_removed: OnRemoved = _nobody) -> Removed:
        """Take blocks out of service in all storages, even if later blocks of their prompts remain."""
        removed = Removed()
        for begin in range(0, len(keys), AT_ONCE):
            # Reverse the order, because the last blocks of a prompt should be removed first.
            some = keys[begin : begin + AT_ONCE][::-1]
            removed += await self._leave(
                instance, "", some, lambda _block, _location: True, on_removed, caller_of(instance)
            )
        return removed

    async def trim_cache(
        self,
        instance: Instance,
        where: str,
        *,
        unused_for: float = 0.0,
        to_bytes: int = 0,
        at_most: int = NO_END,
        on_removed: OnRemoved = _nobody,
    ) -> Removed:
        """Take blocks of an instance out of service in LRU order, but always the last block of a prefix first.

        Args:
            instance: instance of the blocks.
            where: storage type.
            unused_for: minimum number of seconds for which a block must have been unused.
            to_bytes: number of bytes to keep.
            at_most: maximum number of bytes to remove in this call.
            on_removed: called with the removed blocks.
        """
        account = await self._index.account(books.instance_account(instance.name, where))
        surplus = min(account.live - to_bytes, at_most)
        order = Order(where, unused_since=self._clock() - unused_for)
        return await self.evict([instance], order, surplus, {instance.name: surplus}, on_removed, caller_of(instance))

    async def evict(
        self,
        instances: Sequence[Instance],
        order: Order,
        need: int,
        allowed: Mapping[str, int],
        on_removed: OnRemoved = _nobody,
        caller: str = IN_BACKGROUND,
    ) -> Removed:
        """Take blocks out of service until they add up to ``need`` bytes, or until no more blocks may be evicted.

        Args:
            instances: instances of the blocks.
            order: selection and order of the locations.
            need: number of bytes to evict.
            allowed: maximum number of bytes to evict, by instance.
            on_removed: called with the removed blocks.
            caller: name under which the eviction waits for turns.
        """
        left = dict(allowed)
        total = Removed()
        while total.bytes < need:
            candidates = [
                each
                for instance in instances
                if left.get(instance.name, 0) > 0
                for each in await self._candidates(instance, order)
            ]
            chosen = choose(candidates, need - total.bytes, left)
            if not chosen:
                break
            bound = max(each.score for each in chosen)
            before = total
            for instance in instances:
                ends = [each.key for each in chosen if each.instance == instance.name]
                if ends:
                    room = min(left[instance.name], need - total.bytes)
                    removed = await self._evict_prefixes(instance, order, ends, bound, room, on_removed, caller)
                    left[instance.name] -= removed.bytes
                    total += removed
            if total == before:
                break
        return total

    async def _candidates(self, instance: Instance, order: Order) -> list[Candidate]:
        kind = books.ENDS if order.policy == "LRU" else books.FEWEST
        until = order.unused_since if order.policy == "LRU" else float("inf")
        ends = await self._index.lowest(books.ends(kind, instance.name, order.where), AT_ONCE, until)
        blocks = await self._index.get(spaces.blocks_of(instance), [key for key, _ in ends])
        return [
            Candidate(score, instance.name, key, size)
            for (key, score), entry in zip(ends, blocks, strict=True)
            if entry is not None and (size := _size(entry.value, order))
        ]

    async def _evict_prefixes(
        self,
        instance: Instance,
        order: Order,
        ends: Sequence[bytes],
        bound: float,
        room: int,
        on_removed: OnRemoved,
        caller: str,
    ) -> Removed:
        """Evict blocks from the ends of prefixes towards their beginnings, while scores do not exceed ``bound``."""
        keys: list[bytes] = []
        for end in ends:
            if len(keys) >= AT_ONCE or room <= 0:
                break
            for key, size in await self._upwards(instance, order, end, bound, AT_ONCE - len(keys)):
                if size > room:
                    room = 0
                    break
                room -= size
                keys.append(key)
        return await self._leave(
            instance,
            order.where,
            keys,
            lambda block, location: order.takes(location) and block.evictable_from(order.where),
            on_removed,
            caller,
        )

    async def _upwards(
        self, instance: Instance, order: Order, end: bytes, bound: float, at_most: int
    ) -> list[tuple[bytes, int]]:
        space = spaces.blocks_of(instance)
        path: list[tuple[bytes, int]] = []
        key, score = end, float("-inf")
        while key and len(path) < at_most:
            (entry,) = await self._index.get(space, [key])
            if entry is None:
                break
            block: Block = entry.value
            score = max(score, order.score(block))
            is_only_child = not path or (
                block.children.get(RECORDS, 0) <= 1 and block.children.get(order.where, 0) <= 1
            )
            size = _size(block, order)
            if not size or not is_only_child or (path and (score > bound or block.used_at > order.unused_since)):
                break
            path.append((key, size))
            key = block.parent
        return path

    async def _leave(
        self,
        instance: Instance,
        where: str,
        keys: Sequence[bytes],
        goes: Callable[[Block, CacheLocation], bool],
        on_removed: OnRemoved,
        caller: str,
    ) -> Removed:
        due = self._timing.unread_from(self._clock(), self._index.staleness_seconds)
        left: dict[bytes, list[CacheLocation]] = {}

        def change(draft: Draft, _: Found) -> None:
            left.clear()
            for key in keys:
                block = draft.get(key)
                if block is not None and (going := leave(draft, key, partial(goes, block), due)):
                    left[key] = going

        await change_blocks(self._index, spaces.blocks_of(instance), keys, change)
        # Wait for a turn, because one call may make thousands of commits.
        await self._turns.take(caller)
        if left:
            on_removed(instance, where, list(left))
        return Removed(len(left), sum(location.size for locations in left.values() for location in locations))


def _size(block: Block, order: Order) -> int:
    return sum(location.size for location in block.serving() if order.takes(location))

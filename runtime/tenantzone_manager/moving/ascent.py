"""Moves up: frequently read blocks get an additional location in a higher storage type."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple

from tenantzone_manager import spaces
from tenantzone_manager.core import books
from tenantzone_manager.core.heat import HOT, heat_at
from tenantzone_manager.core.moving import Rung, below_watermark, best_location
from tenantzone_manager.core.reclaiming import surplus
from tenantzone_manager.core.records import Block
from tenantzone_manager.core.settings import Instance, Quota, Storage
from tenantzone_manager.index.meta_index import MetaIndex
from tenantzone_manager.moving.carrier import Carrier
from tenantzone_manager.moving.cold import TURN
from tenantzone_manager.moving.copier import Copier, Source, is_small_enough
from tenantzone_manager.moving.descent import Descent
from tenantzone_manager.moving.ladders import Ladders
from tenantzone_manager.moving.rounds import Round
from tenantzone_manager.moving.used import Used

_LOOKED_AT: Final = 256
"""Maximum number of recently used blocks that one pass considers."""
_LONGEST: Final = 4096
"""Maximum number of blocks of one prompt that one pass considers."""
_COLDER: Final = 2.0
"""Factor by which a block must be hotter than the block that it displaces, so that the two do not alternate."""


class _End(NamedTuple):
    """A hot block at which queries ended. All blocks before it are at least as hot."""

    heat: float
    instance: Instance
    key: bytes


class Ascent:
    """Moves blocks up.

    Args:
        index: records of blocks.
        used: recently used blocks, which may be hot.
        carrier: moves blocks.
        copier: reports whether a block can be read.
        descent: makes room in higher storage types.
        ladders: storages that accept copies.
        clock: returns Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        used: Used,
        carrier: Carrier,
        copier: Copier,
        descent: Descent,
        ladders: Ladders,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._used = used
        self._carrier = carrier
        self._copier = copier
        self._descent = descent
        self._ladders = ladders
        self._clock = clock

    async def of_hot_blocks(self, round_: Round) -> None:
        """Copy hot blocks to the highest storage type that has room, or that contains much colder blocks."""
        seen: set[tuple[str, bytes]] = set()
        for end in await self._hot_ends(round_):
            if not round_.may_copy:
                self._used.put_back(round_.group.name, end.instance.name, end.key)
                continue
            by_height: dict[int, list[Source]] = defaultdict(list)
            for height, source in await self._lower_blocks(round_, end, seen):
                by_height[height].append(source)
            for height, sources in by_height.items():
                await self._raise(round_, end, sources, round_.rungs[:height], seen)

    async def _hot_ends(self, round_: Round) -> list[_End]:
        """Returns the hot blocks at which queries ended, hottest first."""
        by_name = {instance.name: instance for instance in round_.instances}
        keys: dict[str, list[bytes]] = defaultdict(list)
        for name, key in self._used.take(round_.group.name, _LOOKED_AT):
            keys[name].append(key)
        now = self._clock()
        ends = []
        for name in keys.keys() & by_name.keys():
            entries = await self._index.get(spaces.blocks_of(by_name[name]), keys[name])
            for key, entry in zip(keys[name], entries, strict=True):
                if entry is not None and (heat := heat_at(entry.value, now)) >= HOT:
                    ends.append(_End(heat, by_name[name], key))
        return sorted(ends, key=lambda end: (-end.heat, end.instance.name, end.key))

    async def _lower_blocks(self, round_: Round, end: _End, seen: set[tuple[str, bytes]]) -> list[tuple[int, Source]]:
        """Returns the blocks of a prompt that are not in the highest storage type, in prompt order.

        Args:
            round_: the pass.
            end: last block of the prompt.
            seen: blocks that this pass has already considered; receives the blocks of the prompt.

        Returns:
            For each block, the index of the highest rung where the block can be read, and the location there.
        """
        found: list[tuple[int, Source]] = []
        key = end.key
        for step in range(_LONGEST):
            if step % TURN == 0:
                await asyncio.sleep(0)
            if not key or (end.instance.name, key) in seen:
                break
            seen.add((end.instance.name, key))
            (entry,) = await self._index.get(spaces.blocks_of(end.instance), [key])
            if entry is None:
                break
            block: Block = entry.value
            best = best_location(block, round_.rungs)
            if best is not None and best[0] > 0 and self._can_be_copied(end.instance, key, block):
                found.append((best[0], Source(key, best[1])))
            # Without full attention, a query reads only a window, so earlier blocks need not be hot.
            key = block.parent if end.instance.needs_prefix else b""
        return found[::-1]

    async def _raise(
        self,
        round_: Round,
        end: _End,
        sources: Sequence[Source],
        above: Sequence[Rung],
        hot: Container[tuple[str, bytes]],
    ) -> None:
        arrived = await self._carrier.carry(round_, end.instance, sources, self._ladders.that_take(above), "up")
        there = {source.key for source in arrived}
        left = [each for each in sources if each.key not in there and self._copier.is_readable(end.instance, each.key)]
        if left and round_.may_copy and (targets := self._ladders.that_take(above)):
            await self._make_room(round_, end, left, targets[0], hot)
            arrived += await self._carrier.carry(round_, end.instance, left, targets, "up")
        round_.done.note("up", arrived)
        if len(arrived) < len(sources) and not round_.may_copy:
            self._used.put_back(round_.group.name, end.instance.name, end.key)
        await self._spare_the_total(round_, end.instance, arrived)

    async def _make_room(
        self, round_: Round, end: _End, sources: Sequence[Source], target: Storage, hot: Container[tuple[str, bytes]]
    ) -> None:
        """Move much colder blocks down if the copies of ``sources`` would otherwise exceed a watermark."""
        wanted = min(sum(each.location.size for each in sources), max(1, int(round_.allowance.bytes)))
        of_type = books.group_chain(round_.group.name, target.type)[0]
        now = self._clock()

        def is_much_colder(instance: Instance, key: bytes, block: Block) -> bool:
            # Blocks before a hot block are hot, too, even if their own records have less heat.
            return (instance.name, key) not in hot and heat_at(block, now) * _COLDER <= end.heat

        for account, storage, quota in (
            (of_type, "", round_.group.types.get(target.type, Quota())),
            (books.storage_account(target.name), target.name, Quota(target.limit, target.watermark)),
        ):
            left = below_watermark(await self._index.account(account), quota)
            if left is None or left >= wanted or (target.type, storage) in round_.full:
                continue
            if not await self._descent.make_room(round_, target.type, storage, wanted - left, is_much_colder):
                round_.full.add((target.type, storage))

    async def _spare_the_total(self, round_: Round, instance: Instance, arrived: Sequence[Source]) -> None:
        """If the group exceeds its total quota, remove the sources of copies, so that other blocks are not evicted."""
        over = surplus(await self._index.account(f"g/{round_.group.name}"), round_.group.total)
        leaving = []
        for source in arrived:
            if over > 0:
                over -= source.location.size
                leaving.append(source)
        await self._carrier.let_go(instance, leaving)

    def _can_be_copied(self, instance: Instance, key: bytes, block: Block) -> bool:
        return is_small_enough(block) and self._copier.is_readable(instance, key)

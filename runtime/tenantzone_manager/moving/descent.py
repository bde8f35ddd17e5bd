"""Moves down: moves cold blocks out of storage types that exceed their watermarks or need room for hotter blocks."""

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from tenantzone_manager.core import books
from tenantzone_manager.core.moving import best_location
from tenantzone_manager.core.reclaiming import may_go, surplus
from tenantzone_manager.core.records import Block
from tenantzone_manager.core.settings import Instance, Quota
from tenantzone_manager.index.meta_index import MetaIndex
from tenantzone_manager.moving.carrier import Carrier
from tenantzone_manager.moving.cold import Cold, coldest
from tenantzone_manager.moving.copier import Copier, is_small_enough
from tenantzone_manager.moving.ladders import Ladders
from tenantzone_manager.moving.rounds import Round

_AT_ONCE: Final = 256 * 2**20
"""Maximum number of bytes to search for at a time."""


Wanted = Callable[[Instance, bytes, Block], bool]
"""Returns whether a block may be moved down. The arguments are the instance, the key and the record of the block."""


def _any(_: Instance, __: bytes, ___: Block) -> bool:
    return True


class Descent:
    """Moves blocks down.

    Args:
        index: records of blocks.
        carrier: moves blocks.
        copier: reports whether a block can be read.
        ladders: storages that accept copies.
    """

    def __init__(self, index: MetaIndex, carrier: Carrier, copier: Copier, ladders: Ladders) -> None:
        self._index = index
        self._carrier = carrier
        self._copier = copier
        self._ladders = ladders

    async def below_watermarks(self, round_: Round) -> None:
        """Move blocks down until each storage type except the lowest, and each storage, is below its watermark."""
        for rung in round_.rungs[:-1]:
            of_type = books.group_chain(round_.group.name, rung.type)[0]
            await self._below(round_, rung.type, "", of_type, round_.group.types.get(rung.type, Quota()))
            for storage in rung.storages:
                quota = Quota(storage.limit, storage.watermark)
                account = books.storage_account(storage.name)
                await self._below(round_, rung.type, storage.name, account, quota)

    async def make_room(self, round_: Round, where: str, storage: str, need: int, may_leave: Wanted = _any) -> int:
        """Move blocks with up to ``need`` bytes down from a storage type; returns the number of moved blocks.

        Args:
            round_: the pass.
            where: storage type from which blocks are moved.
            storage: storage from which blocks are moved, or empty for all storages of the type.
            need: number of bytes to move.
            may_leave: returns whether a block may be moved. If a block may not, the blocks before it stay, too.
        """
        lower = self._ladders.below(round_.rungs, where)

        def is_wanted(instance: Instance, key: bytes, block: Block) -> bool:
            return (
                may_leave(instance, key, block) and is_small_enough(block) and self._copier.is_readable(instance, key)
            )

        names = [instance.name for instance in round_.instances]
        accounts = await self._index.accounts([books.instance_account(name, where) for name in names])
        allowed = may_go(names, where, accounts)
        found = await coldest(self._index, round_.instances, where, storage, min(need, _AT_ONCE), allowed, is_wanted)
        by_instance: dict[str, list[Cold]] = defaultdict(list)
        for cold in found:
            by_instance[cold.instance.name].append(cold)
        below = round_.rungs[[rung.type for rung in round_.rungs].index(where) + 1 :]
        left = 0
        for some in by_instance.values():
            instance = some[0].instance
            # Blocks that already have a location in a lower type need no copy.
            there = {cold.source.key for cold in some if best_location(cold.block, below) is not None}
            sources = [cold.source for cold in some if cold.source.key not in there]
            there |= {source.key for source in await self._carrier.carry(round_, instance, sources, lower, "down")}
            leaving = [cold.source for cold in some if cold.source.key in there]
            gone = await self._carrier.let_go(instance, leaving)
            round_.done.note("down", gone)
            left += len(gone)
        return left

    async def _below(self, round_: Round, where: str, storage: str, account: str, quota: Quota) -> None:
        if quota.watermark is None:
            return
        over = surplus(await self._index.account(account), quota)
        if over > 0:
            await self.make_room(round_, where, storage, over)

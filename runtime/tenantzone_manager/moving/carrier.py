"""Copies blocks to storages that have room, and removes locations that the copies have made superfluous."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.changing import change_blocks
from tenantzone_manager.core.books import instance_account
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.moving import Direction, accounts_of, leave_for_others, room, that_fit
from tenantzone_manager.core.quota import Account
from tenantzone_manager.core.settings import Instance, Storage
from tenantzone_manager.events.writer import Events
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.moving.copier import Copier, Source
from tenantzone_manager.moving.ladders import Ladders
from tenantzone_manager.moving.rounds import Round
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.timing import Timing

AT_ONCE: Final = 8
"""Maximum number of blocks that are copied between two commits and within one lease."""


class Carrier:
    """Copies blocks, and removes locations that a copy has made superfluous.

    Args:
        index: records of blocks.
        storages: the storages, with their availability.
        copier: copies bytes.
        ladders: storages that accept copies.
        events: records moved blocks.
        taking: lock held while locations of an instance are chosen and removed, so that evictor and mover together
            do not reduce the instance to less than its reservation.
        timing: time limits of readers.
        clock: returns Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        storages: DataStorageManager,
        copier: Copier,
        ladders: Ladders,
        events: Events,
        taking: asyncio.Lock,
        timing: Timing,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._storages = storages
        self._copier = copier
        self._ladders = ladders
        self._events = events
        self._taking = taking
        self._timing = timing
        self._clock = clock

    async def carry(
        self, round_: Round, instance: Instance, sources: Sequence[Source], targets: Sequence[Storage], to: Direction
    ) -> list[Source]:
        """Copy blocks to the first target with room, until the allowance of the pass (in bytes) is used up.

        Args:
            round_: the pass.
            instance: instance of the blocks.
            sources: locations to read.
            targets: target storages, in order of preference.
            to: direction of the move.

        Returns:
            The sources whose blocks now have a location in a target.
        """
        left = list(sources)
        arrived: list[Source] = []
        for target in targets:
            while left and round_.may_copy and self._ladders.takes(target.name):
                some = await self._that_fit(round_, instance, left, target)
                if not some:
                    break
                left = left[len(some) :]
                round_.allowance.bytes -= sum(each.location.size for each in some)
                served = await self._copier.copy(instance, some, target, round_.done.failed)
                round_.done.note_copied(to, sum(each.location.size for each in served))
                arrived += served
                keys = [each.key for each in served]
                self._note(f"copy_{to}", instance, keys, storage=target.name, type=target.type)
        return arrived

    async def let_go(self, instance: Instance, sources: Sequence[Source]) -> list[Source]:
        """Take locations out of service if the blocks can be read elsewhere and the instance exceeds its reservation.

        Returns:
            The sources whose locations were taken out of service.
        """
        if not sources:
            return []
        gone: list[Source] = []
        async with self._taking:
            allowed = await self._allowed(instance, {each.location.type for each in sources})
            due = self._timing.unread_from(self._clock(), self._index.staleness_seconds)

            def change(draft: Draft, _: Found) -> None:
                gone.clear()
                left = dict(allowed)
                for source in sources:
                    key, location = source
                    if location.size <= left[location.type] and leave_for_others(
                        draft, key, location.id, lambda each: self._storages.is_available(each.storage), due
                    ):
                        left[location.type] -= location.size
                        gone.append(source)

            await change_blocks(self._index, spaces.blocks_of(instance), [each.key for each in sources], change)
        for where in sorted({each.location.type for each in gone}):
            self._note("let_go", instance, [each.key for each in gone if each.location.type == where], type=where)
        return gone

    async def _that_fit(
        self, round_: Round, instance: Instance, sources: Sequence[Source], target: Storage
    ) -> Sequence[Source]:
        owner = spaces.owner_of(spaces.blocks_of(instance))
        accounts = await self._index.accounts(accounts_of(owner, target))
        some = sources[:AT_ONCE]
        sizes = [each.location.size for each in some]
        fit = that_fit(sizes, room(owner, target, round_.group, accounts))
        # The first block may exceed the remaining allowance, which then becomes negative and delays later copies.
        return some[: min(fit, max(1, that_fit(sizes, int(round_.allowance.bytes))))]

    async def _allowed(self, instance: Instance, types: set[str]) -> dict[str, int]:
        names = {where: instance_account(instance.name, where) for where in types}
        accounts = await self._index.accounts(list(names.values()))
        own = {where: accounts.get(name, Account()) for where, name in names.items()}
        return {where: max(0, account.live - account.reserved) for where, account in own.items()}

    def _note(self, event: str, instance: Instance, keys: Sequence[bytes], **where: str) -> None:
        if keys:
            whose = {"pool": instance.pool, "group": instance.group, "instance": instance.name}
            self._events.note(event, keys=keys, **whose, **where)

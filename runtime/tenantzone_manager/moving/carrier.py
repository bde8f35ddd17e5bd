"""Brings blocks to where there is room, and lets go of what they leave behind."""

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
"""Blocks that are copied between two commits: all within one lease."""


class Carrier:
    """Copies, and takes back what a copy has made superfluous.

    Args:
        index: what is known of blocks.
        storages: which of them can be read.
        copier: copies bytes.
        ladders: which storages take copies.
        events: where it is noted which blocks have moved.
        taking: held while it is decided what an instance loses, and until it has; so no floor is taken by two.
        timing: how long readers may be left.
        clock: Unix time.
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
        """Copy blocks into the first of some storages that has room, as long as something may be copied.

        Args:
            round_: the pass.
            instance: whose.
            sources: what is read of them.
            targets: where they may go, the first choice first.
            to: which way that is.

        Returns:
            Those that have a location there now.
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
        """Have locations cease to serve whose blocks can be read elsewhere; no instance loses what it is promised.

        Returns:
            Those that have.
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
        # The first one may be larger than what is left of the allowance; the next pass has less for it.
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

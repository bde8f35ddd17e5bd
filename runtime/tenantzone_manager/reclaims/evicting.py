"""Evicts blocks that were unused for too long, or that exceed a watermark and can't move to a lower storage type."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core import books
from tenantzone_manager.core.moving import room
from tenantzone_manager.core.quota import Account
from tenantzone_manager.core.reclaiming import Reclaimed, Removed, group_surplus, may_go, over_own_limit, surplus
from tenantzone_manager.core.settings import Instance, InstanceGroup, Quota, Storage
from tenantzone_manager.events.writer import Events
from tenantzone_manager.index.meta_index import MetaIndex
from tenantzone_manager.moving.ladders import Ladders
from tenantzone_manager.reclaims.removing import NO_END, Order, Remover

_LOOKED_AT: Final = 16
"""Maximum number of blocks per instance that are read to find out whether later blocks prevent evictions."""


class Evictor:
    """Evicts blocks. Of the managers that share an index, only the leader runs an evictor.

    Args:
        index: records of blocks.
        catalog: groups with their quotas. Blocks of groups that are not in the catalog are not evicted.
        remover: takes blocks out of service.
        ladders: storages to which blocks may move instead of being evicted.
        events: records evicted blocks.
        taking: lock held while blocks of an instance are chosen and evicted, so that evictor and mover together do
            not reduce the instance to less than its reservation.
        clock: returns Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        catalog: Catalog,
        remover: Remover,
        ladders: Ladders,
        events: Events,
        taking: asyncio.Lock,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._catalog = catalog
        self._remover = remover
        self._ladders = ladders
        self._events = events
        self._taking = taking
        self._clock = clock

    async def evict(self, done: Reclaimed) -> None:
        """Run one pass over all groups and storages.

        Args:
            done: receives the numbers of evicted blocks and bytes.

        Raises:
            IndexUnavailable: the index does not answer. Completed evictions are not undone.
        """
        for group in self._groups():
            async with self._taking:
                done.note_evicted(group.name, await self._evict_unused(group))
                done.note_evicted(group.name, await self._evict_surplus(group))
        async with self._taking:
            await self._evict_from_full_storages(done)

    async def _evict_unused(self, group: InstanceGroup) -> Removed:
        evicted = Removed()
        if group.ttl_seconds is None:
            return evicted
        instances = self._catalog.instances_of(group.name)
        for where in self._types(group):
            order = Order(where, unused_since=self._clock() - group.ttl_seconds)
            evicted += await self._remover.evict(
                instances, order, NO_END, dict.fromkeys((each.name for each in instances), NO_END), self._note_evicted
            )
        return evicted

    async def _evict_surplus(self, group: InstanceGroup) -> Removed:
        """Evict blocks to bring a group below its watermarks, and its instances below their limits.

        Returns:
            The numbers of evicted blocks and bytes.
        """
        instances = self._catalog.instances_of(group.name)
        types = self._types(group)
        evicted = Removed()
        accounts = await self._accounts(group, instances, types)
        for where in types:
            for instance in instances:
                own = accounts.get(books.instance_account(instance.name, where), Account())
                if over := over_own_limit(own):
                    order = Order(where, group.eviction_policy)
                    evicted += await self._remover.evict(
                        [instance], order, over, {instance.name: over}, self._note_evicted
                    )
        accounts = await self._accounts(group, instances, types)
        for where, over in group_surplus(group, types, accounts).items():
            is_relieved, removed = await self._relieve(group, instances, where, over)
            account = accounts[books.group_chain(group.name, where)[0]]
            over = surplus(account, group.types[where], is_relieved)
            evicted += removed + await self._evict(group, instances, where, over, accounts)
        accounts = await self._accounts(group, instances, types)
        over = surplus(accounts.get(f"g/{group.name}", Account()), group.total)
        # Eviction begins with the least preferred storage type.
        for where in reversed(types):
            if over <= 0:
                break
            removed = await self._evict(group, instances, where, over, accounts)
            over -= removed.bytes
            evicted += removed
        return evicted

    async def _evict_from_full_storages(self, done: Reclaimed) -> None:
        """Evict blocks from storages that exceed their watermarks, one group after another."""
        for storage in list(self._catalog.storages.values()):
            if storage.limit is None or storage.watermark is None:
                continue
            account = await self._index.account(books.storage_account(storage.name))
            quota = Quota(storage.limit, storage.watermark)
            over = surplus(account, quota)
            if over:
                is_relieved = [await self._relieve_storage(group, storage, over, done) for group in self._groups()]
                over = surplus(account, quota, any(is_relieved))
            for group in self._groups():
                if over <= 0:
                    break
                instances = self._catalog.instances_of(group.name)
                accounts = await self._accounts(group, instances, [storage.type])
                removed = await self._evict(group, instances, storage.type, over, accounts, storage.name)
                over -= removed.bytes
                done.note_evicted(group.name, removed)

    async def _relieve_storage(self, group: InstanceGroup, storage: Storage, over: int, done: Reclaimed) -> bool:
        if storage.name not in group.storages:
            return False
        instances = self._catalog.instances_of(group.name)
        is_relieved, removed = await self._relieve(group, instances, storage.type, over, storage.name)
        done.note_evicted(group.name, removed)
        return is_relieved

    async def _relieve(
        self, group: InstanceGroup, instances: list[Instance], where: str, over: int, storage: str = ""
    ) -> tuple[bool, Removed]:
        """Make room in lower storage types so that blocks can move down instead of being evicted.

        If the lower types have no room, and their blocks prevent the eviction of earlier blocks from this type, the
        coldest blocks of the lower types are evicted. Without this step, the newest blocks of this type would be
        evicted, because only the newest blocks are the last blocks of a prefix.

        Args:
            group: group of the blocks.
            instances: instances of the group.
            where: storage type from which blocks move down.
            over: number of surplus bytes in that type.
            storage: storage of that type, or empty for all of its storages.

        Returns:
            Whether blocks can move down, and the blocks and bytes that were evicted from lower types.
        """
        lower = self._ladders.below(self._ladders.of(group), where)
        if not lower:
            return False, Removed()
        accounts = await self._accounts(group, instances, self._types(group))
        owners = {books.Owner(each.name, group.name): _block_bytes(each) for each in instances}
        rooms = [(room(owner, each, group, accounts), size) for owner, size in owners.items() for each in lower]
        if any(left is None or left >= size for left, size in rooms):
            return True, Removed()
        if not await self._are_held_up(instances, where, storage, accounts):
            return False, Removed()
        evicted = Removed()
        for below in reversed(dict.fromkeys(each.type for each in lower)):
            # Bytes that are already being deleted will make room, too.
            over -= accounts.get(books.group_chain(group.name, below)[0], Account()).deleting
            if over > 0:
                removed = await self._evict(group, instances, below, over, accounts)
                over -= removed.bytes
                evicted += removed
        return True, evicted

    async def _are_held_up(
        self, instances: list[Instance], where: str, storage: str, accounts: dict[str, Account]
    ) -> bool:
        """Returns whether only later blocks in lower types prevent the eviction of blocks from a storage type.

        Args:
            instances: instances of the blocks.
            where: storage type.
            storage: storage of that type, or empty for all of its storages.
            accounts: the current accounts of the instances.
        """
        allowed = may_go([each.name for each in instances], where, accounts)
        order = Order(where, storage=storage)
        for instance in instances:
            if allowed.get(instance.name, 0) >= _block_bytes(instance):
                held = await self._index.lowest(books.ends(books.BORDER, instance.name, where), _LOOKED_AT)
                entries = await self._index.get(spaces.blocks_of(instance), [key for key, _ in held])
                if any(order.takes(each) for entry in entries if entry is not None for each in entry.value.serving()):
                    return True
        return False

    async def _evict(
        self,
        group: InstanceGroup,
        instances: list[Instance],
        where: str,
        need: int,
        accounts: dict[str, Account],
        storage: str = "",
    ) -> Removed:
        allowed = may_go([each.name for each in instances], where, accounts)
        order = Order(where, group.eviction_policy, storage=storage)
        return await self._remover.evict(instances, order, need, allowed, self._note_evicted)

    def _note_evicted(self, instance: Instance, where: str, keys: Sequence[bytes]) -> None:
        self._events.note(
            "evict", pool=instance.pool, group=instance.group, instance=instance.name, type=where, keys=keys
        )

    async def _accounts(
        self, group: InstanceGroup, instances: list[Instance], types: Iterable[str]
    ) -> dict[str, Account]:
        names = {f"g/{group.name}", *(books.storage_account(name) for name in group.storages)}
        for where in types:
            names.add(books.group_chain(group.name, where)[0])
            names |= {books.instance_account(each.name, where) for each in instances}
        return await self._index.accounts(sorted(names))

    def _groups(self) -> list[InstanceGroup]:
        return list(self._catalog.groups.values())

    def _types(self, group: InstanceGroup) -> list[str]:
        """Returns the types of the group's storages in order of preference, then all other types."""
        known = [self._catalog.storages[name].type for name in group.storages if name in self._catalog.storages]
        return list(dict.fromkeys([*known, *(each.type for each in self._catalog.storages.values())]))


def _block_bytes(instance: Instance) -> int:
    return sum(spec.size for spec in instance.specs)

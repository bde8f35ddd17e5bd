"""Stores storages, groups, instances and service accounts in the index, and keeps a copy of them in memory."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tenantzone_manager import spaces
from tenantzone_manager.core import books
from tenantzone_manager.core.quota import UNLIMITED, Terms
from tenantzone_manager.core.settings import (
    Instance,
    InstanceGroup,
    ServiceAccount,
    Storage,
    check_group,
    check_instance,
)
from tenantzone_manager.core.sharing import Registered, of_namespace, shared
from tenantzone_manager.index.backend import Address, IndexUnavailable
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.membership import Membership, by_zone

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_NOT_OF_THE_PLACE = ("takeover", "credentials", "http")
"""Names of the storage options that may be changed, because they are not part of the storage's address."""


class NotFound(Exception):
    """No object with this name is visible to the caller."""


class Refused(Exception):
    """The change contradicts registered objects. The message says what to change."""


class Catalog:
    """The registered storages, groups, instances and service accounts.

    Args:
        index: the index that stores the objects.
    """

    def __init__(self, index: MetaIndex) -> None:
        self.groups: dict[str, InstanceGroup] = {}
        self.instances: dict[str, Instance] = {}
        self.storages: dict[str, Storage] = {}
        self.service_accounts: dict[str, ServiceAccount] = {}
        self.is_stale = True
        """Whether the index may have changed since the catalog was read."""
        self._index = index
        self._membership = Membership(index)
        self._may_need_mending = False
        self._changes = 0
        """Counter that is incremented at the beginning and at the end of each change by this process."""
        index.on_change(self._changed)

    async def load(self) -> None:
        """Read all registered objects."""
        self.is_stale = False
        self._may_need_mending = True
        before = self._changes
        try:
            groups = await self._all(spaces.GROUPS, InstanceGroup)
            instances = await self._all(spaces.INSTANCES, Instance)
            storages = await self._all(spaces.STORAGES, Storage)
            service_accounts = await self._all(spaces.SERVICE_ACCOUNTS, ServiceAccount)
        except BaseException:
            self.is_stale = True
            raise
        # The records may lack changes that this process made during the read.
        self.is_stale |= self._changes != before
        self.groups, self.instances = groups, instances
        self.storages, self.service_accounts = storages, service_accounts

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Mark the ``with`` block as a change of the catalog.

        If the block fails, the change may still have been committed, so the catalog is marked as stale.
        """
        self._changes += 1
        try:
            yield
        except (IndexUnavailable, asyncio.CancelledError):
            self.is_stale = True
            raise
        finally:
            self._changes += 1

    async def instance(self, name: str) -> Instance:
        """Returns an instance.

        Raises:
            NotFound: there is no instance with this name.
        """
        if name not in self.instances:
            (found,) = await self._index.get(spaces.INSTANCES, [name.encode()])
            if found is None:
                raise NotFound(f"there is no instance {name}")
            self.instances[name] = found.value
        return self.instances[name]

    def group(self, name: str) -> InstanceGroup:
        """Returns a group.

        Raises:
            NotFound: there is no group with this name.
        """
        if name not in self.groups:
            raise NotFound(f"there is no instance group {name}")
        return self.groups[name]

    def group_meant(self, name: str) -> InstanceGroup | None:
        """Returns the group with this name, or else the group with this alias, or else None."""
        by_alias = (group for group in self.groups.values() if name in group.aliases)
        return self.groups.get(name) or next(by_alias, None)

    def instances_of(self, group: str) -> list[Instance]:
        """Returns the instances that share the group's quota."""
        return [instance for instance in self.instances.values() if instance.group == group]

    async def put_group(self, group: InstanceGroup, namespace: str = "") -> InstanceGroup:
        """Create or replace a group. If the group uses more bytes than its new limits, blocks are evicted later.

        Args:
            group: the new settings.
            namespace: namespace whose pools, aliases, instances and zones are replaced. If empty, the pools, aliases,
                instances and zones of all namespaces are replaced.

        Returns:
            The group after the change, including the settings of other namespaces.

        Raises:
            ValueError: the settings contradict each other, or name an object of another namespace.
            Refused: the group names an unregistered storage, or an instance or alias of another group.
        """
        check_group(group)
        unknown = [name for name in group.storages if name not in self.storages]
        if unknown:
            raise Refused(f"group {group.name} names unregistered storages; register them first: {', '.join(unknown)}")
        for name in group.instances:
            if name in self.instances and self.instances[name].group != group.name:
                raise Refused(
                    f"group {group.name}: instance {name} belongs to the group {self.instances[name].group}; set the "
                    "quotas of the instance in that group"
                )
        for other in self.groups.values():
            if other.name != group.name and (taken := set(group.aliases) & set(other.aliases)):
                raise Refused(f"group {group.name}: the group {other.name} already has the alias {min(taken)}")
        registered = await self._registered(group) if namespace else {}

        def say(known: InstanceGroup | None) -> InstanceGroup:
            if not namespace:
                return group
            made = shared(known, group, namespace, registered)
            check_group(made, known)
            return made

        known = by_zone(self.instances_of(group.name)).get(group.name, {})
        with self._changing():
            made = await self._membership.rewrite(group.name, say, known)
            assert made is not None, "the group has settings"
            self.groups[group.name] = made
        return made

    async def mend_zones(self) -> None:
        """Correct the quotas of zones that are not divided equally among their instances. Only the leader calls this.

        Does nothing unless :meth:`load` was called since the last check. Only changes by other processes can need a
        correction, and :meth:`load` reads these changes.
        """
        if not self._may_need_mending:
            return
        self._may_need_mending = False
        groups = {group.name: group for group in self.groups.values() if group.zones}
        instances = [instance for instance in self.instances.values() if instance.group in groups]
        try:
            for name in await self._membership.fix(groups.values(), by_zone(instances)):
                _log.info("group %s: corrected the quotas of the instances in the group's zones", name)
        except BaseException:
            self._may_need_mending = True
            raise

    async def group_of(self, group: InstanceGroup, namespace: str) -> InstanceGroup:
        """Returns a group with its common settings, but without pools, aliases and quotas of other namespaces."""
        return of_namespace(group, namespace, await self._registered(group))

    async def remove_group(self, name: str) -> None:
        """Remove a group.

        Raises:
            NotFound: there is no group with this name.
            Refused: the group has instances.
        """
        self.group(name)
        # Read from the index, because another process may have registered instances.
        instances = (await self._all(spaces.INSTANCES, Instance)).values()

        def check(members: list[str]) -> None:
            if members:
                raise Refused(f"group {name} has instances: {', '.join(members[:5])}; unregister them first")

        check([instance.name for instance in instances if instance.group == name])
        with self._changing():
            await self._membership.remove(name, check)
            # Another call may already have removed the group.
            self.groups.pop(name, None)

    async def register_instance(self, instance: Instance) -> Instance:
        """Register an instance. If an equal instance is already registered, nothing changes.

        Raises:
            ValueError: the settings of the instance contradict each other.
            NotFound: the group of the instance does not exist.
            Refused: a different instance has this name, or another group has quotas for this name.
        """
        check_instance(instance)
        self.group(instance.group)

        def check(known: Instance | None, group: InstanceGroup | None) -> None:
            if known is not None and known != instance:
                raise Refused(
                    f"instance {instance.name} is already registered with other settings, and an instance never "
                    "changes; register the new settings under another name"
                )
            if known is not None:
                return
            if group is None:
                raise NotFound(f"there is no instance group {instance.group}; create the group first")
            for other in self.groups.values():
                if other.name != instance.group and instance.name in other.instances:
                    raise Refused(
                        f"the group {other.name} has a quota for the instance {instance.name}; remove that quota first"
                    )

        with self._changing():
            await self._membership.join(instance, check)
            self.instances[instance.name] = instance
        return instance

    async def forget_instance(self, instance: Instance) -> None:
        """Remove an instance that has no blocks, and divide its reservation among the other instances of its zone."""
        with self._changing():
            await self._membership.leave(instance)
            self.instances.pop(instance.name, None)

    async def put_storage(self, storage: Storage) -> None:
        """Create or replace a storage.

        Raises:
            Refused: the type or the address would change, and blocks may be stored at the current address.
        """
        address = Address(spaces.STORAGES, storage.name.encode())

        def modifier(found: Found) -> dict[Address, Storage]:
            known = found[address]
            if known is not None and _place_of(known) != _place_of(storage):
                raise Refused(
                    f"storage {storage.name} is already registered with another type or address; register the new "
                    "storage under another name"
                )
            return {address: storage}

        limit = UNLIMITED if storage.limit is None else storage.limit
        terms = [Terms((books.storage_account(storage.name),), limit=limit)]
        with self._changing():
            await self._index.read_modify_write([address], modifier, lambda _: terms)
            self.storages[storage.name] = storage

    async def remove_storage(self, name: str) -> None:
        """Remove a storage.

        Raises:
            NotFound: there is no storage with this name.
            Refused: groups use the storage, or blocks are stored in it.
        """
        if name not in self.storages:
            raise NotFound(f"there is no storage {name}")
        if users := [group.name for group in self.groups.values() if name in group.storages]:
            raise Refused(
                f"storage {name} is used by the groups {', '.join(users[:5])}; remove it from these groups first"
            )
        used = (await self._index.account(books.storage_account(name))).used
        if used:
            raise Refused(
                f"storage {name} contains {used} bytes of blocks; disable the storage and remove the blocks first"
            )
        with self._changing():
            await self._index.delete(spaces.STORAGES, [name.encode()])
            self.storages.pop(name, None)

    async def put_service_account(self, account: ServiceAccount) -> None:
        """Register a service account. Engines with tokens of this account may access the instances of one pool."""
        with self._changing():
            await self._index.put(spaces.SERVICE_ACCOUNTS, {account.name.encode(): account})
            self.service_accounts[account.name] = account

    async def remove_service_account(self, name: str) -> None:
        """Remove a service account.

        Raises:
            NotFound: the service account is not registered.
        """
        if name not in self.service_accounts:
            raise NotFound(f"there is no service account {name}")
        with self._changing():
            await self._index.delete(spaces.SERVICE_ACCOUNTS, [name.encode()])
            self.service_accounts.pop(name, None)

    async def _registered(self, group: InstanceGroup) -> Registered:
        """Maps each instance name with quotas in the old or new group to the instance, or to None if not registered."""
        known = self.groups.get(group.name, group)
        found: dict[str, Instance | None] = {}
        for name in {*group.instances, *known.instances}:
            try:
                found[name] = await self.instance(name)
            except NotFound:
                found[name] = None
        return found

    async def _all(self, space: str, kind: type[_T]) -> dict[str, _T]:
        found: dict[str, _T] = {}
        cursor = b""
        while True:
            some, cursor = await self._index.scan(space, cursor, 500)
            found.update({key.decode(): value for key, value in some})
            if not cursor:
                return found

    def _changed(self, space: str, _: Sequence[bytes]) -> None:
        if space in ("", spaces.GROUPS, spaces.INSTANCES, spaces.STORAGES, spaces.SERVICE_ACCOUNTS):
            self.is_stale = True


def _place_of(storage: Storage) -> tuple[str, dict[str, str | int | bool]]:
    return storage.type, {name: value for name, value in storage.options.items() if name not in _NOT_OF_THE_PLACE}

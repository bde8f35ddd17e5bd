"""Reconciles storages and groups with the KV-cache manager, one by one: a refused object does not delay the others."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tenantzone_contract.kube_names import GROUPS, KINDS, STORAGES
from tenantzone_contract.text import printable
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.cache_manager.answers import LONGEST_MESSAGE
from tenantzone_operator.cache_manager.client import ManagerClient, ManagerRefused
from tenantzone_operator.cache_manager.declared import (
    Declared,
    DeclaredGroup,
    DeclaredStorage,
    emptied_group,
    emptied_storage,
)
from tenantzone_operator.cache_manager.members import Members, with_members
from tenantzone_operator.cache_manager.objects import Objects
from tenantzone_operator.cache_manager.statuses import Found
from tenantzone_operator.kube.conditions import Reason, name_some
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.writing.refusals import Refusals

logger = logging.getLogger(__name__)


class Turn:
    """One round that reconciles all objects with the manager, and the results of its calls."""

    def __init__(
        self,
        client: ManagerClient,
        objects: Objects,
        storages: Sequence[DeclaredStorage],
        groups: Sequence[DeclaredGroup],
        shared: Mapping[str, Members],
        refused_accounts: Refusals,
        namespace: str | None = None,
    ) -> None:
        self.unreachable = ""
        self.instances: list[Body] = []
        """All instances of the manager. Stays empty if no group names zones, because then they are not needed."""
        self._shared = shared
        self._refused_accounts = refused_accounts
        self._namespace = namespace
        """The only namespace that the operator watches; None for all namespaces."""
        self._of = {} if namespace is None else {"namespace": namespace}
        self._client = client
        self._objects = objects
        self._storages = storages
        self._groups = groups
        self._known_storages: dict[str, Body] = {}
        self._known_groups: dict[str, Body] = {}
        self._found: dict[str, Found] = {}
        self._passed_over: set[str] = set()
        """Uids of objects whose status this round does not write, because they were released or changed meanwhile."""

    async def look(self) -> None:
        """List the storages, groups and, if needed, instances that the manager has.

        Raises:
            ManagerUnavailable: the manager does not answer.
        """
        listed = await self._ask("ListStorages")
        self._known_storages = {each["storage"]["name"]: each for each in listed["storages"]}
        listed = await self._ask("ListInstanceGroups", **self._of)
        self._known_groups = {each["group"]["name"]: each for each in listed["groups"]}
        if any(group.zones for group in self._groups):
            self.instances = (await self._ask("ListInstances"))["instances"]

    async def keep_storages(self) -> None:
        """Register each storage that is not being deleted, as its KVStorage declares it."""
        for storage in _present(self._storages):
            name = storage.meta.name
            known = self._known_storages.get(name)
            await self._keep(STORAGES, storage, storage.wanted, known, "storage", "RegisterStorage")
            found = self._found.get(storage.meta.uid)
            if found is not None and found.report is not None:
                self._known_storages[name] = found.report

    async def keep_groups(self) -> None:
        """Register each group that is not being deleted, if the manager has all storages of the group."""
        # An alias must be removed from its old group before a new group can get it, so update old groups first.
        for group in sorted(_present(self._groups), key=self._loses_no_alias):
            known = self._known_groups.get(group.meta.name)
            missing = [name for name in group.storages if name not in self._known_storages]
            if missing:
                why = f"the KV-cache manager lacks these storages: {name_some(missing)}; create or fix their KVStorages"
                self._found[group.meta.uid] = Found(refused=why, reason=Reason.STORAGE_NOT_FOUND, report=known)
                continue
            wanted = with_members(group, self._shared[group.meta.uid])
            await self._keep(GROUPS, group, wanted, known, "group", "PutInstanceGroup", **self._of)

    def _loses_no_alias(self, group: DeclaredGroup) -> bool:
        known = self._known_groups.get(group.meta.name, {}).get("group", {})
        return set(known.get("aliases", ())) <= set(self._shared[group.meta.uid].aliases)

    async def keep_service_accounts(self, owners: dict[str, str]) -> None:
        """Register these service accounts, and remove all other service accounts in the watched namespaces.

        Args:
            owners: the pool of each service account, by the account's name, both as NAMESPACE/NAME.
        """
        listed = await self._ask("ListServiceAccounts")
        known = {each["name"]: each["pool"] for each in listed["accounts"]}
        for name, pool in owners.items():
            if known.get(name) == pool:
                self._refused_accounts.done(name)
            else:
                with self._logged_if_refused(name, f"refuses the service account {name} of the pool {pool}"):
                    await self._ask("PutServiceAccount", account={"name": name, "pool": pool})
                    logger.info("the KV-cache manager accepts the service account %s of the pool %s", name, pool)
        for name in known.keys() - owners.keys():
            if self._namespace in (None, name.partition("/")[0]):
                with self._logged_if_refused(name, f"refuses to remove the service account {name}"):
                    await self._remove("RemoveServiceAccount", name=name)
                    logger.info("the service account %s was removed, because no pool names it", name)

        self._refused_accounts.keep(known.keys() | owners.keys())

    @contextmanager
    def _logged_if_refused(self, account: str, what: str) -> Iterator[None]:
        """Catch the manager's refusal of a service account. Log a new refusal, because no status reports it."""
        try:
            yield
        except ManagerRefused as error:
            if self._refused_accounts.note(account, (what, str(error)), time.monotonic()):
                logger.warning("the KV-cache manager %s: %s", what, error)
        else:
            self._refused_accounts.done(account)

    async def let_groups_go(self) -> None:
        """Empty and remove the groups that are being deleted, and remove their finalizers."""
        for group in _leaving(self._groups):
            if await self._has_gone(group):
                await self._let_go(GROUPS, group)

    async def let_storages_go(self) -> None:
        """Empty and unregister each storage that is being deleted and that no group uses."""
        for storage in _leaving(self._storages):
            name = storage.meta.name
            known = self._known_storages.get(name)
            users = [each for each, known in self._known_groups.items() if name in known["group"].get("storages", ())]
            if known is None:
                await self._let_go(STORAGES, storage)
            elif users:
                self._wait(storage, f"the groups {name_some(sorted(users))} no longer name this storage", known)
            else:
                await self._empty_storage(storage, known)

    def found(self, declared: Declared) -> Found:
        """Returns what this round found out about an object."""
        found = self._found.get(declared.meta.uid)
        if found is not None and (not self.unreachable or declared.meta.deleting):
            return found
        return Found(unreachable=self.unreachable)

    def usable(self, group: DeclaredGroup) -> int:
        """Returns the number of a group's storages that can be used now."""
        return sum(self._known_storages.get(name, {}).get("available", False) for name in group.storages)

    def left(self, declared: Sequence[Any]) -> list[Any]:
        """Returns the objects whose status must be written in this round."""
        return [each for each in declared if each.meta.uid not in self._passed_over]

    async def _keep(
        self, plural: str, declared: Declared, wanted: Body, known: Body | None, field: str, call: str, **more: str
    ) -> None:
        """Add the finalizer to an object, and register the object with the manager if the manager's copy differs.

        Args:
            plural: the plural name of the object's kind.
            declared: the declared object.
            wanted: the object for the manager's API.
            known: the manager's current report on the object; None if the manager does not have the object.
            field: the name of the field that contains the object in calls and reports.
            call: the name of the call that registers the object.
            more: additional fields of the call.
        """
        if declared.invalid:
            self._found[declared.meta.uid] = Found(refused=declared.invalid, report=known)
            return
        # If the finalizer or the manager's object is missing, another operator may just have finished the deletion.
        # Adding the finalizer detects that, because the request fails if the object has changed since the listing.
        if (known is None or not declared.is_held) and not await self._hold(plural, declared, known):
            return
        if known is not None and known[field] == wanted:
            self._found[declared.meta.uid] = Found(report=known)
            return
        try:
            report = await self._ask(call, **{field: wanted}, **more)
        except ManagerRefused as error:
            self._found[declared.meta.uid] = Found(refused=str(error), report=known)
            return
        logger.info(
            "the KV-cache manager registered %s %s, generation %d", field, declared.meta.name, declared.meta.generation
        )
        self._found[declared.meta.uid] = Found(report=report)

    async def _hold(self, plural: str, declared: Declared, known: Body | None) -> bool:
        """Add the finalizer to an object. Returns False if the API server refuses it, or if the object has changed."""
        try:
            await self._objects.hold(plural, declared)
        except RestError as error:
            if error.is_outdated:
                self._passed_over.add(declared.meta.uid)
            elif error.is_lasting:
                why = f"can't add the finalizer that delays deletion until all blocks are gone: {_shown(error)}"
                self._found[declared.meta.uid] = Found(refused=why, reason=Reason.NOT_HELD, report=known)
            else:
                raise
            return False
        return True

    async def _has_gone(self, group: DeclaredGroup) -> bool:
        """Empty and remove a group. Returns whether the manager no longer has the group."""
        name = group.meta.name
        known = self._known_groups.get(name)
        if known is None:
            return True
        try:
            wanted = emptied_group(known["group"])
            if known["group"] != wanted:
                known = await self._ask("PutInstanceGroup", group=wanted, **self._of)
            for instance in (await self._ask("ListInstances"))["instances"]:
                if instance["instance"]["group"] == name and not any(instance.get("bytes_by_type", {}).values()):
                    await self._remove("UnregisterInstance", instance_id=instance["instance"]["name"])
            await self._remove("RemoveInstanceGroup", group=name)
        except ManagerRefused:
            self._wait(group, "the group's instances have no more blocks", known)
            return False
        del self._known_groups[name]
        return True

    async def _empty_storage(self, storage: DeclaredStorage, known: Body) -> None:
        try:
            wanted = emptied_storage(known["storage"])
            if known["storage"] != wanted and known.get("used", 0):
                known = await self._ask("RegisterStorage", storage=wanted)
            await self._remove("UnRegisterStorage", name=storage.meta.name)
        except ManagerRefused:
            problem = printable(known.get("problem", ""), LONGEST_MESSAGE)
            waits = "the storage is empty" + (f", and can be accessed again: {problem}" if problem else "")
            self._wait(storage, waits, known)
            return
        await self._let_go(STORAGES, storage)

    def _wait(self, declared: Declared, leaving: str, report: Body | None = None) -> None:
        self._found[declared.meta.uid] = Found(leaving=leaving, report=report)

    async def _let_go(self, plural: str, declared: Declared) -> None:
        if declared.is_held:
            try:
                await self._objects.let_go(plural, declared)
            except RestError as error:
                if error.is_lasting:
                    self._wait(declared, f"the API server accepts the removal of the finalizer: {_shown(error)}")
                    return
                if not error.is_outdated:
                    raise
            else:
                logger.info("%s %s was removed from the KV-cache manager", KINDS[plural], declared.meta.name)
        self._passed_over.add(declared.meta.uid)

    async def _ask(self, call: str, /, **fields: Any) -> dict[str, Any]:
        return await self._client.call(call, **fields)

    async def _remove(self, call: str, /, **fields: Any) -> None:
        """Make a call that removes an object. A missing object counts as removed."""
        try:
            await self._ask(call, **fields)
        except ManagerRefused as error:
            if not error.is_missing:
                raise


def _shown(error: RestError) -> str:
    return printable(str(error), LONGEST_MESSAGE)


def _present(declared: Sequence[Any]) -> list[Any]:
    return [each for each in declared if not each.meta.deleting]


def _leaving(declared: Sequence[Any]) -> list[Any]:
    return [each for each in declared if each.meta.deleting]

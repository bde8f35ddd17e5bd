"""Has the manager know what is declared, over and over; one round looks at everything.

The manager itself is the record of what it was told: what it has is compared with what is declared in each round, so
nothing is remembered here, and a new leader goes on where the one before it ended. What nobody declares stays as it is:
that an object is missing is no command. What was deleted is held by a finalizer until its blocks are gone.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

from tenantzone_contract.text import printable
from tenantzone_operator.cache_manager.answers import LONGEST_MESSAGE
from tenantzone_operator.cache_manager.client import ManagerClient, ManagerRefused, ManagerUnavailable
from tenantzone_operator.cache_manager.declared import (
    Declared,
    DeclaredGroup,
    DeclaredStorage,
    emptied_group,
    emptied_storage,
    read_group,
    read_storage,
)
from tenantzone_operator.cache_manager.members import Members, members, service_accounts, with_members, zone_rows
from tenantzone_operator.cache_manager.notices import manager_notices
from tenantzone_operator.cache_manager.objects import GROUPS, KINDS, STORAGES, Objects
from tenantzone_operator.cache_manager.statuses import Found, group_status, storage_status, without_gauges
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.conditions import Reason, name_some
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.kube.specs import Body
from tenantzone_operator.kube.store import Store
from tenantzone_operator.writing.events import Recorder

logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = 5.0
"""Between two rounds in which nothing was declared anew: how old the manager's figures may be here."""
LONGEST_SECONDS: Final = 20.0
"""Between two, after several in which somebody did not answer."""
GAUGES_SECONDS: Final = 5.0
"""Between two writes of an object's status in which only amounts have changed, ..."""
GAUGE_WRITES_PER_SECOND: Final = 20
"""... and longer where there are many objects: no more than so many of such writes at a time."""
_NOBODY: Final = Members((), (), {}, ())
_PAUSE_SECONDS: Final = 0.3
"""Between two rounds, whatever changes: what comes together is done together."""
_OUTDATED: Final = (404, 409)
"""Answers to a write of an object that has changed, or gone, since it was listed: the next round sees it as it is."""
NEEDS_CRDS: Final = "the API server does not know KVStorages and KVCacheGroups: kubectl apply -f crds/"


class ManagerReconciler:
    """What the leader does for one KV-cache manager.

    Args:
        api: of the API server.
        client: of the manager.
        store: has the pools.
        namespace: the only one that is served; None: all.
    """

    def __init__(self, api: Api, client: ManagerClient, store: Store, namespace: str | None) -> None:
        self._api = api
        self._objects = Objects(api)
        self._client = client
        self._store = store
        self._namespace = namespace
        self._complaint = ""
        self._count = 0
        """Of objects."""
        self._gauges_at: dict[str, float] = {}
        """When an object's status was last written, by uid."""

    async def run(self) -> None:
        """Work until cancelled."""
        recorder = Recorder(self._api)
        recording = asyncio.create_task(recorder.run(), name="events of the manager's objects")
        wait = ROUND_SECONDS
        try:
            while True:
                complaint = ""
                try:
                    complaint = await self._round(recorder)
                except (RestError, aiohttp.ClientError, TimeoutError) as error:
                    is_without_kinds = isinstance(error, RestError) and error.status == 404
                    complaint = NEEDS_CRDS if is_without_kinds else explain(error)
                except Exception:
                    logger.exception("a round for the KV-cache manager failed; there will be another")
                    complaint = self._complaint
                if complaint and complaint != self._complaint:
                    logger.warning("the KV-cache manager: %s; trying again", complaint)
                elif self._complaint and not complaint:
                    logger.info("the KV-cache manager answers again")
                self._complaint = complaint
                await asyncio.sleep(_PAUSE_SECONDS)
                has_changed = await self._objects.await_change(wait)
                # What is declared meanwhile, or written of it, is no reason to ask the manager less often.
                if not complaint:
                    wait = ROUND_SECONDS
                elif not has_changed:
                    wait = min(2 * wait, LONGEST_SECONDS)
        finally:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)

    async def _round(self, recorder: Recorder) -> str:
        """Look at everything once; returns why the manager does not answer, empty if it does.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: the API server is in trouble.
        """
        storages = await self._objects.list_all(STORAGES, read_storage)
        groups = await self._objects.list_all(GROUPS, read_group)
        owners, problems = service_accounts(self._store.pools)
        shared = members(groups, self._store.pools, self._store.zones, problems)
        turn = _Turn(self._client, self._objects, storages, groups, shared)
        try:
            await turn.look()
            await turn.keep_storages()
            await turn.keep_groups()
            await turn.keep_service_accounts(owners, self._namespace)
            await turn.let_groups_go()
            await turn.let_storages_go()
        except ManagerUnavailable as error:
            turn.unreachable = str(error)
        except ManagerRefused as error:
            # Of what was asked for no object in particular, such as what it has.
            turn.unreachable = f"{self._client.address.url}: {error}"
        self._count = len(storages) + len(groups)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for storage in turn.left(storages):
            await self._tell(recorder, STORAGES, storage, storage_status(storage, turn.found(storage), now=now))
        for group in turn.left(groups):
            sharing = shared.get(group.meta.uid, _NOBODY)
            rows = zone_rows(group, sharing, turn.instances)
            status = group_status(group, turn.found(group), sharing.problems, turn.usable(group), rows, now=now)
            await self._tell(recorder, GROUPS, group, status)
        there = {each.meta.uid for each in (*storages, *groups)}
        self._gauges_at = {uid: at for uid, at in self._gauges_at.items() if uid in there}
        return turn.unreachable

    async def _tell(self, recorder: Recorder, plural: str, declared: Declared, status: Body) -> None:
        """Write a status that differs from the one that is there, amounts less often."""
        before, uid, now = declared.status, declared.meta.uid, time.monotonic()
        if status == before:
            return
        is_news = without_gauges(status) != without_gauges(before)
        wait = max(GAUGES_SECONDS, self._count / GAUGE_WRITES_PER_SECOND)
        if not is_news and now - self._gauges_at.get(uid, float("-inf")) < wait:
            return
        self._gauges_at[uid] = now
        try:
            await self._objects.apply_status(plural, declared, status)
        except RestError as error:
            if error.is_lasting:
                # Such as what a webhook of somebody's refuses; it keeps no other object from being told.
                logger.warning("the status of %s %s: %s", KINDS[plural], declared.meta.name, error)
            elif error.status not in _OUTDATED:
                raise
            return
        for notice in manager_notices(before, status):
            recorder.record(KINDS[plural], declared.meta, notice)


class _Turn:
    """What one round finds, and does, at the manager."""

    def __init__(
        self,
        client: ManagerClient,
        objects: Objects,
        storages: Sequence[DeclaredStorage],
        groups: Sequence[DeclaredGroup],
        shared: Mapping[str, Members],
    ) -> None:
        self.unreachable = ""
        self.instances: list[Body] = []
        """All that the manager knows, where zones have quotas of their own."""
        self._shared = shared
        self._client = client
        self._objects = objects
        self._storages = storages
        self._groups = groups
        self._known_storages: dict[str, Body] = {}
        self._known_groups: dict[str, Body] = {}
        self._found: dict[str, Found] = {}
        self._passed_over: set[str] = set()
        """The uids of objects that were let go, or have changed meanwhile: nothing is to be told of them now."""

    async def look(self) -> None:
        """Ask the manager what it has.

        Raises:
            ManagerUnavailable: it does not answer.
        """
        listed = await self._ask("ListStorages")
        self._known_storages = {each["storage"]["name"]: each for each in listed["storages"]}
        listed = await self._ask("ListInstanceGroups")
        self._known_groups = {each["group"]["name"]: each for each in listed["groups"]}
        if any(group.zones for group in self._groups):
            self.instances = (await self._ask("ListInstances"))["instances"]

    async def keep_storages(self) -> None:
        """Have each storage registered as it is declared."""
        for storage in _present(self._storages):
            name = storage.meta.name
            known = self._known_storages.get(name)
            await self._keep(STORAGES, storage, storage.wanted, known, "storage", "RegisterStorage")
            found = self._found.get(storage.meta.uid)
            if found is not None and found.report is not None:
                self._known_storages[name] = found.report

    async def keep_groups(self) -> None:
        """Have each group as it is declared, and none on storages that nobody declares."""
        # A name can be another group's alias only after the one that had it has lost it.
        for group in sorted(_present(self._groups), key=self._loses_no_alias):
            known = self._known_groups.get(group.meta.name)
            missing = [name for name in group.storages if name not in self._known_storages]
            if missing:
                why = f"storages that the KV-cache manager does not have: {name_some(missing)}; make or mend KVStorages"
                self._found[group.meta.uid] = Found(refused=why, reason=Reason.STORAGE_NOT_FOUND, report=known)
                continue
            wanted = with_members(group, self._shared[group.meta.uid], self.instances)
            await self._keep(GROUPS, group, wanted, known, "group", "PutInstanceGroup")

    def _loses_no_alias(self, group: DeclaredGroup) -> bool:
        known = self._known_groups.get(group.meta.name, {}).get("group", {})
        return set(known.get("aliases", ())) <= set(self._shared[group.meta.uid].aliases)

    async def keep_service_accounts(self, owners: dict[str, str], namespace: str | None) -> None:
        """Have exactly the engines of these pools let in, of the namespace that is served."""
        listed = await self._ask("ListServiceAccounts")
        known = {each["name"]: each["pool"] for each in listed["accounts"]}
        for name, pool in owners.items():
            if known.get(name) != pool:
                with _told_if_refused(f"does not let in {name} for the pool {pool}"):
                    await self._ask("PutServiceAccount", account={"name": name, "pool": pool})
                    logger.info("the KV-cache manager lets in %s for the pool %s", name, pool)
        for name in known.keys() - owners.keys():
            if namespace in (None, name.partition("/")[0]):
                with _told_if_refused(f"goes on letting in {name}, which no pool names"):
                    await self._remove("RemoveServiceAccount", name=name)
                    logger.info("the KV-cache manager lets in %s no longer: no pool names it", name)

    async def let_groups_go(self) -> None:
        """Empty and remove the groups that were deleted."""
        for group in _leaving(self._groups):
            if await self._has_gone(group):
                await self._let_go(GROUPS, group)

    async def let_storages_go(self) -> None:
        """Empty and unregister the storages that were deleted, once no group uses them."""
        for storage in _leaving(self._storages):
            name = storage.meta.name
            known = self._known_storages.get(name)
            users = [each for each, told in self._known_groups.items() if name in told["group"].get("storages", ())]
            if known is None:
                await self._let_go(STORAGES, storage)
            elif users:
                self._wait(storage, f"the groups {name_some(sorted(users))} do not name it any more", known)
            else:
                await self._empty_storage(storage, known)

    def found(self, declared: Declared) -> Found:
        """What became of an object."""
        found = self._found.get(declared.meta.uid)
        if found is not None and (not self.unreachable or declared.meta.deleting):
            return found
        return Found(unreachable=self.unreachable)

    def usable(self, group: DeclaredGroup) -> int:
        """How many of a group's storages can be used now."""
        return sum(self._known_storages.get(name, {}).get("available", False) for name in group.storages)

    def left(self, declared: Sequence[Any]) -> list[Any]:
        """Those of which something is to be told."""
        return [each for each in declared if each.meta.uid not in self._passed_over]

    async def _keep(
        self, plural: str, declared: Declared, wanted: Body, known: Body | None, field: str, call: str
    ) -> None:
        """Have the manager know an object as it is declared, after it is held."""
        if declared.invalid:
            self._found[declared.meta.uid] = Found(refused=declared.invalid, report=known)
            return
        if not declared.is_held and not await self._hold(plural, declared, known):
            return
        if known is not None and known[field] == wanted:
            self._found[declared.meta.uid] = Found(report=known)
            return
        try:
            report = await self._ask(call, **{field: wanted})
        except ManagerRefused as error:
            self._found[declared.meta.uid] = Found(refused=str(error), report=known)
            return
        logger.info(
            "the KV-cache manager has %s %s of generation %d", field, declared.meta.name, declared.meta.generation
        )
        self._found[declared.meta.uid] = Found(report=report)

    async def _hold(self, plural: str, declared: Declared, known: Body | None) -> bool:
        """Have an object outlive its deletion; False: it can't be, or it is another one by now."""
        try:
            await self._objects.hold(plural, declared)
        except RestError as error:
            if error.status in _OUTDATED:
                self._passed_over.add(declared.meta.uid)
            elif error.is_lasting:
                why = f"it can't be held until its blocks are gone: {_shown(error)}"
                self._found[declared.meta.uid] = Found(refused=why, reason=Reason.NOT_HELD, report=known)
            else:
                raise
            return False
        return True

    async def _has_gone(self, group: DeclaredGroup) -> bool:
        """Whether the manager has let a group go; else it is emptied meanwhile."""
        name = group.meta.name
        known = self._known_groups.get(name)
        if known is None:
            return True
        try:
            wanted = emptied_group(known["group"])
            if known["group"] != wanted:
                known = await self._ask("PutInstanceGroup", group=wanted)
            for instance in (await self._ask("ListInstances"))["instances"]:
                if instance["instance"]["group"] == name and not any(instance.get("bytes_by_type", {}).values()):
                    await self._remove("UnregisterInstance", instance_id=instance["instance"]["name"])
            await self._remove("RemoveInstanceGroup", group=name)
        except ManagerRefused:
            self._wait(group, "its instances have no blocks any more", known)
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
            waits = "no blocks lie there any more" + (f", and it can be used again: {problem}" if problem else "")
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
                    self._wait(declared, f"the API server takes it, which says: {_shown(error)}")
                    return
                if error.status not in _OUTDATED:
                    raise
            else:
                logger.info("%s %s is gone from the KV-cache manager", KINDS[plural], declared.meta.name)
        self._passed_over.add(declared.meta.uid)

    async def _ask(self, call: str, /, **fields: Any) -> dict[str, Any]:
        return await self._client.call(call, **fields)

    async def _remove(self, call: str, /, **fields: Any) -> None:
        """Make a call that removes something; that it is not there is as good."""
        try:
            await self._ask(call, **fields)
        except ManagerRefused as error:
            if not error.is_missing:
                raise


@contextmanager
def _told_if_refused(what: str) -> Iterator[None]:
    """Go on after a refusal that is about one thing, of which no status tells."""
    try:
        yield
    except ManagerRefused as error:
        logger.warning("the KV-cache manager %s: %s", what, error)


def _shown(error: RestError) -> str:
    return printable(str(error), LONGEST_MESSAGE)


def _present(declared: Sequence[Any]) -> list[Any]:
    return [each for each in declared if not each.meta.deleting]


def _leaving(declared: Sequence[Any]) -> list[Any]:
    return [each for each in declared if each.meta.deleting]

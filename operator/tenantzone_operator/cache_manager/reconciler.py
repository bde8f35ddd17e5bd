"""Keeps the KV-cache manager in line with the declared objects; each round looks at everything.

The manager is the only record of what was registered. Each round compares its state to the declared objects, so this
process stores nothing, and a new leader continues where the previous one stopped. The operator leaves alone what no
object declares: a missing object is no command. A finalizer holds a deleted object until its blocks are gone.
"""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Final

import aiohttp

from tenantzone_contract.specs import Body
from tenantzone_operator.cache_manager.client import ManagerClient, ManagerRefused, ManagerUnavailable
from tenantzone_operator.cache_manager.declared import Declared, read_group, read_storage
from tenantzone_operator.cache_manager.members import Members, members, namespace_rows, service_accounts, zone_rows
from tenantzone_operator.cache_manager.notices import manager_notices
from tenantzone_operator.cache_manager.objects import GROUPS, KINDS, OUTDATED, STORAGES, Objects
from tenantzone_operator.cache_manager.statuses import group_status, is_refused, storage_status, without_gauges
from tenantzone_operator.cache_manager.turn import Turn
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.kube.store import Store
from tenantzone_operator.writing.events import Recorder
from tenantzone_operator.writing.refusals import Refusals

logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = 5.0
"""The seconds between two rounds while nothing changes: the greatest age of the manager's figures here."""
LONGEST_SECONDS: Final = 20.0
"""The longest time between two rounds, after several rounds in which a server did not answer."""
GAUGES_SECONDS: Final = 5.0
"""The least time between two writes of one status in which only amounts have changed, in seconds."""
GAUGE_WRITES_PER_SECOND: Final = 20
"""The most such writes per second over all objects; with many objects, each is written less often."""
_NOBODY: Final = Members((), (), {}, ())
_PAUSE_SECONDS: Final = 0.3
"""The least time between two rounds: changes that arrive together are handled together."""
NEEDS_CRDS: Final = "the API server does not know KVStorages and KVCacheGroups: kubectl apply -f crds/"


class ManagerReconciler:
    """The leader's work for one KV-cache manager.

    Args:
        api: a client of the API server.
        client: a client of the manager.
        store: has the pools and zones.
        namespace: the only namespace that is served; None for all.
    """

    def __init__(self, api: Api, client: ManagerClient, store: Store, namespace: str | None) -> None:
        self._api = api
        self._objects = Objects(api)
        self._client = client
        self._store = store
        self._namespace = namespace
        self.answers: bool | None = None
        """Whether the manager answered the last call; None if it was not called in this term as leader."""
        self._complaint = ""
        self._refused_accounts = Refusals()
        self._refused_statuses = Refusals()
        """Refused statuses, so that a refusal that repeats in each round is logged once."""
        self._count = 0
        """The number of objects."""
        self._told_at: dict[str, float] = {}
        """When each object's status was last written, by uid, in monotonic seconds."""

    async def run(self) -> None:
        """Run rounds until cancelled."""
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
                    logger.warning("the KV-cache manager: %s; retrying", complaint)
                elif self._complaint and not complaint:
                    logger.info("the KV-cache manager answers again")
                self._complaint = complaint
                await asyncio.sleep(_PAUSE_SECONDS)
                has_changed = await self._objects.await_change(wait)
                # Changes in the meantime are no reason to ask an unreachable manager more often.
                if not complaint:
                    wait = ROUND_SECONDS
                elif not has_changed:
                    wait = min(2 * wait, LONGEST_SECONDS)
        finally:
            self.answers = None
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)

    async def _round(self, recorder: Recorder) -> str:
        """Run one round; returns why the manager does not answer, empty if it does.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: the API server is in trouble.
        """
        storages = await self._objects.list_all(STORAGES, read_storage)
        groups = await self._objects.list_all(GROUPS, read_group)
        owners, problems = service_accounts(self._store.pools)
        shared = members(groups, self._store.pools, self._store.zones, problems, self._namespace)
        turn = Turn(self._client, self._objects, storages, groups, shared, self._refused_accounts, self._namespace)
        try:
            await turn.look()
            await turn.keep_storages()
            # First, because others may be about to use the names of the groups that go.
            await turn.let_groups_go()
            await turn.keep_groups()
            await turn.keep_service_accounts(owners)
            await turn.let_storages_go()
        except ManagerUnavailable as error:
            turn.unreachable = str(error)
        except ManagerRefused as error:
            # A refusal of a call that is about no particular object, such as a listing.
            turn.unreachable = f"{self._client.address.url}: {error}"
        self.answers = not turn.unreachable
        self._count = len(storages) + len(groups)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for storage in turn.left(storages):
            await self._tell(recorder, STORAGES, storage, storage_status(storage, turn.found(storage), now=now))
        for group in turn.left(groups):
            sharing = shared.get(group.meta.uid, _NOBODY)
            rows = zone_rows(group, sharing, turn.instances, self._namespace)
            looked_at = namespace_rows(group, sharing, self._namespace)
            status = group_status(group, turn.found(group), looked_at, turn.usable(group), rows, now=now)
            await self._tell(recorder, GROUPS, group, status)
        there = {each.meta.uid for each in (*storages, *groups)}
        self._refused_statuses.keep(there)
        self._told_at = {uid: at for uid, at in self._told_at.items() if uid in there}
        return turn.unreachable

    def _pause(self, status: Body, *, is_news: bool) -> float:
        """Returns the least time between two writes of one object's status, in seconds."""
        if self._namespace is not None and (not self.answers or is_refused(status)):
            # The operator of another namespace may write the opposite each time.
            return LONGEST_SECONDS
        return 0.0 if is_news else max(GAUGES_SECONDS, self._count / GAUGE_WRITES_PER_SECOND)

    async def _tell(self, recorder: Recorder, plural: str, declared: Declared, status: Body) -> None:
        """Write a status if it differs from the current one; less often if only amounts differ."""
        before, uid, now = declared.status, declared.meta.uid, time.monotonic()
        if status == before:
            self._refused_statuses.done(uid)
            return
        wait = self._pause(status, is_news=without_gauges(status) != without_gauges(before))
        if now - self._told_at.get(uid, float("-inf")) < wait:
            return
        self._told_at[uid] = now
        try:
            await self._objects.apply_status(plural, declared, status)
        except RestError as error:
            if error.is_lasting:
                # For example a webhook refuses it. Other objects' statuses must still be written.
                if self._refused_statuses.note(uid, str(error), now):
                    logger.warning("the status of %s %s: %s", KINDS[plural], declared.meta.name, error)
            elif error.status not in OUTDATED:
                raise
            return
        self._refused_statuses.done(uid)
        for notice in manager_notices(before, status):
            recorder.record(KINDS[plural], declared.meta, notice)

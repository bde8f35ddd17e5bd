"""Reconciles the KV-cache manager with KVStorages and KVCacheGroups. Each round compares all objects.

Only the manager stores the registrations. This process stores nothing, so a new leader continues where the previous
leader stopped. The operator leaves a registration unchanged if the cluster has no object for it, because a missing
object does not prove that a user deleted it. A finalizer delays the deletion of an object until its blocks are gone.
"""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Final

from tenantzone_contract.kube_names import GROUPS, KINDS, STORAGES
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.cache_manager.client import ManagerClient, ManagerRefused, ManagerUnavailable
from tenantzone_operator.cache_manager.declared import Declared, read_group, read_storage
from tenantzone_operator.cache_manager.members import Members, members, namespace_rows, service_accounts, zone_rows
from tenantzone_operator.cache_manager.notices import manager_notices
from tenantzone_operator.cache_manager.objects import Objects
from tenantzone_operator.cache_manager.statuses import group_status, is_refused, storage_status, without_gauges
from tenantzone_operator.cache_manager.turn import Turn
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.rest import REQUEST_ERRORS, RestError
from tenantzone_operator.kube.store import Store
from tenantzone_operator.writing.events import Recorder
from tenantzone_operator.writing.refusals import Refusals

logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = 5.0
"""Seconds between two rounds without changes, which is also the maximum age of figures in statuses."""
LONGEST_SECONDS: Final = 20.0
"""Maximum pause in seconds between rounds while the manager or the API server does not answer."""
GAUGES_SECONDS: Final = 5.0
"""Minimum number of seconds between two writes of one status if only amounts have changed."""
GAUGE_WRITES_PER_SECOND: Final = 20
"""Maximum number of writes per second that change only amounts. With many objects, each is written less often."""
_NOBODY: Final = Members((), (), {}, ())
_PAUSE_SECONDS: Final = 0.3
"""Minimum number of seconds between two rounds, so that one round handles all changes that arrive together."""
NEEDS_CRDS: Final = "the API server does not know KVStorages and KVCacheGroups: kubectl apply -f crds/"


class ManagerReconciler:
    """Reconciles one KV-cache manager while this process is the leader.

    Args:
        api: a client of the API server.
        client: a client of the manager.
        store: contains the pools and zones.
        namespace: the only namespace that the operator watches; None for all namespaces.
    """

    def __init__(self, api: Api, client: ManagerClient, store: Store, namespace: str | None) -> None:
        self._api = api
        self._objects = Objects(api)
        self._client = client
        self._store = store
        self._namespace = namespace
        self.answers: bool | None = None
        """Whether the manager answered in the last round; None if this process does not lead or had no round yet."""
        self._complaint = ""
        self._refused_accounts = Refusals()
        self._refused_statuses = Refusals()
        """Refused status writes, recorded so that a refusal that repeats in each round is logged only once."""
        self._count = 0
        """Number of KVStorages and KVCacheGroups in the last round."""
        self._told_at: dict[str, float] = {}
        """Monotonic time in seconds at which each object's status was last written, by uid."""

    async def run(self) -> None:
        """Reconcile in rounds until the task is cancelled."""
        recorder = Recorder(self._api)
        recording = asyncio.create_task(recorder.run(), name="events of the manager's objects")
        wait = ROUND_SECONDS
        try:
            while True:
                complaint = ""
                try:
                    complaint = await self._round(recorder)
                except REQUEST_ERRORS as error:
                    is_without_kinds = isinstance(error, RestError) and error.status == 404
                    complaint = NEEDS_CRDS if is_without_kinds else explain(error)
                except Exception:
                    logger.exception("reconciling the KV-cache manager failed; retrying")
                    complaint = self._complaint
                if complaint and complaint != self._complaint:
                    logger.warning("the KV-cache manager: %s; retrying", complaint)
                elif self._complaint and not complaint:
                    logger.info("the KV-cache manager answers again")
                self._complaint = complaint
                await asyncio.sleep(_PAUSE_SECONDS)
                has_changed = await self._objects.await_change(wait)
                # Changes must not shorten the backoff while the manager is unreachable.
                if not complaint:
                    wait = ROUND_SECONDS
                elif not has_changed:
                    wait = min(2 * wait, LONGEST_SECONDS)
        finally:
            self.answers = None
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)

    async def _round(self, recorder: Recorder) -> str:
        """Run one round. Returns why the manager does not answer, or an empty text if it answers.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: a request to the API server failed.
        """
        storages = await self._objects.list_all(STORAGES, read_storage)
        groups = await self._objects.list_all(GROUPS, read_group)
        owners, problems = service_accounts(self._store.pools)
        shared = members(groups, self._store.pools, self._store.zones, problems, self._namespace)
        turn = Turn(self._client, self._objects, storages, groups, shared, self._refused_accounts, self._namespace)
        try:
            await turn.look()
            await turn.keep_storages()
            # Remove deleted groups first, because other groups may be about to take over their aliases.
            await turn.let_groups_go()
            await turn.keep_groups()
            await turn.keep_service_accounts(owners)
            await turn.let_storages_go()
        except ManagerUnavailable as error:
            turn.unreachable = str(error)
        except ManagerRefused as error:
            # The refused call is not about a single object: it is a listing, for example.
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
        """Returns the minimum number of seconds between the last write of an object's status and the next write."""
        if self._namespace is not None and (not self.answers or is_refused(status)):
            # An operator of another namespace may write a different status to the same group in each of its rounds.
            return LONGEST_SECONDS
        return 0.0 if is_news else max(GAUGES_SECONDS, self._count / GAUGE_WRITES_PER_SECOND)

    async def _tell(self, recorder: Recorder, plural: str, declared: Declared, status: Body) -> None:
        """Write a status if it differs from the current status. If only amounts differ, limit the rate of writes."""
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
                # A webhook may have refused the write. Continue, because other objects' statuses must still be written.
                if self._refused_statuses.note(uid, str(error), now):
                    logger.warning("the status of %s %s: %s", KINDS[plural], declared.meta.name, error)
            elif not error.is_outdated:
                raise
            return
        self._refused_statuses.done(uid)
        for notice in manager_notices(before, status):
            recorder.record(KINDS[plural], declared.meta, notice)

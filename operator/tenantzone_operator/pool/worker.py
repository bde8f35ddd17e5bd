"""Reconciles one pool, level-triggered: each reconcile reads the current state, whatever event caused the reconcile."""

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime

from tenantzone_operator.engines.admin_key import AdminKey
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.engines.reports import max_report_bytes
from tenantzone_operator.engines.watch import EngineWatch
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.informer import LONGEST_ASKED_SECONDS
from tenantzone_operator.kube.pod_watch import PodsForbiddenError, PodsUnknownError, PodWatch
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.kube.rest import REQUEST_ERRORS, RestError
from tenantzone_operator.kube.store import Key, Store, View
from tenantzone_operator.logs import About, Complaints
from tenantzone_operator.metrics.instruments import RECONCILE_SECONDS, RECONCILES
from tenantzone_operator.planning.capacity import planned_seats, planned_size
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import Plan, leaving, make_plan
from tenantzone_operator.planning.provisional import found_provisional, still_provisional
from tenantzone_operator.planning.repeated_purges import with_repeated_purges
from tenantzone_operator.pool.advising import Advising
from tenantzone_operator.pool.delivery import Delivery
from tenantzone_operator.pool.mounts import Mounts
from tenantzone_operator.pool.not_served import ConfigForbiddenError, advice, not_served_outcome, recall, was_served
from tenantzone_operator.pool.outcome import Outcome, engine_outcomes
from tenantzone_operator.status.acknowledgement import History
from tenantzone_operator.status.notices import Reclaims, Status
from tenantzone_operator.status.statuses import ZoneStatuses, leaving_pool_status, pool_status
from tenantzone_operator.writing.events import Recorder
from tenantzone_operator.writing.status_writer import StatusWriter, WritingSlots

logger = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.05
"""Debounce interval: seconds without a further change after which a reconcile starts."""
LONGEST_DEBOUNCE_SECONDS = 0.25
"""Maximum number of seconds that the debounce delays a reconcile."""
GUARD_SECONDS = 5.0
"""Seconds between two checks for changes of the ConfigMap by other clients."""
WRITING_SECONDS = 10.0
"""Maximum number of seconds that one reconcile spends on writing statuses."""
HASTY_WRITING_SECONDS = 0.2
"""Maximum number of seconds that a reconcile spends on writing statuses if the next reconcile is already scheduled.

If the rest of the reconcile took longer than that, writing may take as long as the rest. Otherwise status writes would
make no progress in pools with thousands of zones, whose reconciles take seconds.
"""
FIRST_RETRY_SECONDS = 0.2
LAST_RETRY_SECONDS = 5.0

TRANSIENT = (*REQUEST_ERRORS, PodsUnknownError, ConfigForbiddenError)
"""Errors that a retry may resolve."""


class PoolWorker:
    """Reconciles one pool repeatedly: plans its config, publishes it, and writes the statuses.

    Args:
        key: the pool's namespace and name. If the pool does not exist, the worker reports that in the zones' statuses.
        store: all watched objects.
        api: writes objects.
        recorder: records Events.
        quota: the reading quota of the pool's namespace.
        slots: the writing slots of the pool's namespace.
        admin_key: returns the tokens for the engines' admin ports.
    """

    def __init__(
        self,
        key: Key,
        store: Store,
        api: Api,
        recorder: Recorder,
        quota: ReadingQuota,
        slots: WritingSlots,
        admin_key: AdminKey,
    ) -> None:
        self._key = key
        self._store = store
        self._api = api
        self._log = About(logger, {"pool_namespace": key[0], "pool": key[1]})
        self._admin_key = admin_key
        self._engines = EngineWatch(
            changed=self._hear, quota=quota, log=self._log, tokens=lambda: admin_key.known_tokens(*key)
        )
        self._is_refused = False
        """Whether an engine refused the pool's admin tokens in the last reconcile."""
        self._pods = PodWatch(key, store, api, changed=self.mark, log=self._log)
        self._max_zones = 0
        """The largest number of zones so far, from which the maximum size of reports follows.

        The current number is not enough, because engines may still report deleted zones.
        """
        self._history = History()
        self._room = ConfigRoom()
        self._delivery = Delivery(api, self._history, lambda: admin_key.known_tokens(*key), self._log)
        self._mounts = Mounts(key, api, self._delivery, admin_key, self.mark, self._log)
        self._recorder = recorder
        self._reclaims = Reclaims()
        self._zone_statuses = ZoneStatuses()
        self._provisional: frozenset[str] | None = None
        """Names of the zones that were accepted while no engine size was known; None to derive them from the status."""
        self._advising = Advising()
        self._pool_status: dict[str, Status] = {}
        """The last status that this worker computed, by the pool's uid."""
        self._statuses = StatusWriter(store, api, recorder, slots)
        self._later: asyncio.TimerHandle | None = None
        self._dirty = asyncio.Event()
        self._is_settled = False
        self._is_served = True
        """False if the operator lacks rights for the pool, and the pool never had a config (reason PoolNotServed)."""
        self._complaints = Complaints(self._log, f"pool {'/'.join(key)}")
        self.outcome: Outcome | None = None
        """The outcome of the last reconcile; None before the first one."""
        self.attempted_at = time.monotonic()
        """Monotonic time of the last attempt to reconcile, successful or not."""

    @property
    def _writes(self) -> int:
        return self._mounts.writes + self._statuses.writes

    @property
    def is_dirty(self) -> bool:
        return self._dirty.is_set()

    @property
    def is_serving(self) -> bool:
        """Whether the pool exists and is served. A pool that ever had a config is served even if rights are missing."""
        return self._pods.is_followed and self._is_served

    @property
    def has_stale_pods(self) -> bool:
        """Whether the last listing of the pool's pods is older than ``pod_watch.STALE_SECONDS``."""
        return self._pods.is_stale

    def mark(self) -> None:
        """Schedule a reconcile, because something may have changed."""
        self._dirty.set()

    def _hear(self) -> None:
        """Schedule a reconcile after a changed report. All engines are polled together, so no debounce is needed."""
        self._is_settled = True
        self.mark()

    def recall(self) -> None:
        """Schedule a reconcile that reads the ConfigMap again, because another client may have changed it."""
        self._delivery.must_recall = True
        self.mark()

    async def run(self) -> None:
        """Reconcile until the pool and all zones that name it are deleted."""
        where = "/".join(self._key)
        watching = asyncio.create_task(self._engines.run(), name=f"engines of {where}")
        guarding = asyncio.create_task(self._guard_config(), name=f"config of {where}")
        try:
            await self._work()
        finally:
            watching.cancel()
            guarding.cancel()
            self._engines.stop()
            self._pods.stop()
            self._mounts.stop()
            if self._later is not None:
                self._later.cancel()
            await self._statuses.stop()

    async def _guard_config(self) -> None:
        """Check periodically for changes of the ConfigMap by other clients, because the ConfigMap is not watched."""
        while True:
            await asyncio.sleep(GUARD_SECONDS)
            pool = self._store.pools.get(self._key)
            if pool is None or pool.meta.deleting or self._delivery.must_recall:
                continue
            with contextlib.suppress(*TRANSIENT):
                if await self._delivery.has_changed(pool):
                    self.recall()

    async def _work(self) -> None:
        retry = FIRST_RETRY_SECONDS
        while True:
            await self._settled()
            view = self._store.view(self._key)
            if view.is_empty:
                return
            self.attempted_at = time.monotonic()
            writes = self._writes
            try:
                with RECONCILE_SECONDS.time():
                    await self._look()
            except TRANSIENT as error:
                self._complaints.say(f"{explain(error)}; retrying")
                asked = error.retry_after if isinstance(error, RestError) else None
                is_outdated = isinstance(error, RestError) and error.is_outdated
            except Exception:
                # An error in one pool must not stop the reconciles of other pools.
                self._log.exception("pool %s/%s: the reconcile failed; retrying in %.1f s", *self._key, retry)
                asked, is_outdated = None, False
            else:
                RECONCILES.labels("changed" if self._writes > writes else "unchanged").inc()
                retry = FIRST_RETRY_SECONDS
                continue
            RECONCILES.labels("failed").inc()
            # Read the ConfigMap again, because a failed write may still have taken effect.
            self._delivery.must_recall = True
            self._dirty.set()
            if is_outdated and retry == FIRST_RETRY_SECONDS:
                # Retry once without backoff, because usually another client has just changed the ConfigMap.
                self._is_settled = True
            else:
                await asyncio.sleep(max(retry, min(asked or 0.0, LONGEST_ASKED_SECONDS)))
            retry = min(2 * retry, LAST_RETRY_SECONDS)

    async def _look(self) -> None:
        """Reconcile the pool, or report in its status that the operator lacks rights for the pool."""
        try:
            await self._reconcile(await self._with_pods())
        except (PodsForbiddenError, ConfigForbiddenError) as error:
            view = self._store.view(self._key)
            granted = self._history.newest is not None
            self._is_served = view.pool is None or granted or was_served(view.pool)
            if view.pool is None or self._is_served:
                if not granted:
                    # Another operator now serves the pool, so the refusal that this worker reported before is outdated.
                    self.outcome = None
                raise
            self._complaints.say(f"not served: {advice(error)}")
            await self._tell_not_served(view, view.pool, advice(error))
        else:
            self._is_served = True
            self._complaints.forget()

    async def _settled(self) -> None:
        """Wait for a change, and then until no further change follows (debounce)."""
        await self._dirty.wait()
        until = time.monotonic() + LONGEST_DEBOUNCE_SECONDS
        while self._dirty.is_set() and not self._is_settled and time.monotonic() < until:
            self._dirty.clear()
            await asyncio.sleep(DEBOUNCE_SECONDS)
        self._dirty.clear()
        self._is_settled = False

    async def _with_pods(self) -> View:
        """Wait until the pool's pods are listed, and return the view of the pool's objects.

        Raises:
            PodsUnknownError: the pods can't be listed.
        """
        while True:
            view = self._store.view(self._key)
            if self._pods.knows_pods_of(view.pool):
                return view
            await self._pods.follow(view.pool)

    async def _reconcile(self, view: View) -> None:
        pool, began = view.pool, time.monotonic()
        if pool is not None:
            # Verifying the signature of the ConfigMap needs the key.
            await self._admin_key.ensure(again=self._is_refused)
            if self._delivery.must_recall:
                await recall(self._delivery, pool)
                self._mounts.look_again()
        observations = await self._look_at_engines(pool, view)
        is_refused = any(observation.nack for observation in observations)
        if pool is not None and is_refused and await self._delivery.has_changed(pool):
            await self._delivery.recall(pool)
        if pool is not None:
            self._delivery.exceed_engines(pool, observations)
        view = replace(view, zones=with_repeated_purges(view.zones, self._delivery.in_force))
        size = planned_size(pool, [observation.blocks for observation in observations], self._status_of(pool))
        advised = self._advising.over(pool, view.zones)
        provisional = self._provisional
        if provisional is None:
            provisional = found_provisional(pool, self._delivery.in_force)
        # Plan in a thread, because a plan for thousands of zones takes long and would block the other pools.
        plan = await asyncio.to_thread(
            make_plan,
            advised.pool,
            advised.zones,
            in_force=self._delivery.in_force,
            last_generation=self._status_of(pool).get("configGeneration", 0),
            size=size,
            room=self._room,
            seats=planned_seats(observations),
            provisional=provisional,
            is_confirmed=self._delivery.is_confirmed,
        )
        self._provisional = still_provisional(provisional, plan.decisions)
        self._mounts.follow(view.pods)
        failure = None
        if pool is not None and plan.config is not None:
            # Write the statuses before the error is raised, because a failed write must not delay them.
            failure = await self._mounts.bring(pool, view.pods, plan.config, observations, self._engines.hurry)
        await self._tell(view, plan, observations, size, began)
        if failure is not None:
            raise failure
        self._pods.check_age()
        if all(seen.report is not None and self._history.acknowledges_newest(seen.report) for seen in observations):
            self._engines.relax()

    async def _look_at_engines(self, pool: Pool | None, view: View) -> list[Observation]:
        if pool is None:
            return await self._engines.look_at([], 0, 0)
        known = self._delivery.in_force.zones if self._delivery.in_force is not None else ()
        self._max_zones = max(self._max_zones, len(view.zones), len(known))
        may_register = pool.config is not None and pool.config.unknown_tenants.mode == "AutoRegister"
        max_bytes = max_report_bytes(self._max_zones, may_register=may_register)
        observations = await self._engines.look_at(view.engines, pool.admin_port, max_bytes)
        self._is_refused = any(seen.refuses for seen in observations)
        self._history.look_at_sizes(observations)
        return observations

    def _make_pool_status(
        self, view: View, plan: Plan, observations: list[Observation], size: int | None, now: str
    ) -> Status | None:
        """Returns the status that the pool should have; None if the pool does not exist."""
        if view.status_pool is None:
            return None
        before = self._status_of(view.status_pool)
        if view.pool is not None:
            status = pool_status(
                view.pool,
                plan,
                observations,
                self._history,
                size=size,
                before=before,
                now=now,
                not_written=self._delivery.not_written,
                salt_not_made=self._mounts.salt_not_made,
                token_not_made=self._mounts.token_not_made,
                unwatched=self._mounts.unwatched(view.pool),
                overlaps=view.overlaps,
            )
            status |= self._advising.status(view.pool, view.zones, observations, self._history, before)
        else:
            status = leaving_pool_status(view.status_pool, before=before, now=now)
        self._pool_status = {view.status_pool.meta.uid: status}
        return status

    def _status_of(self, pool: Pool | None) -> Status:
        """Returns the last status that this worker computed, or else the status in the API server."""
        return self._pool_status.get(pool.meta.uid, pool.status) if pool is not None else {}

    def _has_new_adjustments(self, view: View) -> bool:
        """Returns whether this reconcile wrote other adjustments than its plan used, so that a new config is needed."""
        written = self._store.pools.get(self._key)
        if written is None or view.pool is None:
            return False
        return written.status.get("adjustments") != view.pool.status.get("adjustments")

    async def _tell_not_served(self, view: View, pool: Pool, why: str) -> None:
        """Write the statuses of a pool that the operator lacks rights for, and of the pool's zones."""
        before = self._status_of(pool)
        self.outcome = not_served_outcome(
            view, pool, why, self._zone_statuses, self._history, before=before, now=_now()
        )
        self._pool_status = {pool.meta.uid: self.outcome.pool or {}}
        self._come_back(await self._statuses.write(view, self.outcome.zones, self.outcome.pool, lambda: True))

    def _come_back(self, wait: float | None) -> None:
        """Replace the scheduled next reconcile by one in ``wait`` seconds; None cancels without a replacement."""
        if self._later is not None:
            self._later.cancel()
        self._later = asyncio.get_running_loop().call_later(wait, self.mark) if wait is not None else None

    async def _tell(
        self, view: View, plan: Plan, observations: list[Observation], size: int | None, looking_since: float
    ) -> None:
        """Write the statuses that have changed, and schedule a reconcile for postponed writes."""
        now = _now()
        zones = await asyncio.to_thread(
            self._zone_statuses.make,
            [*view.zones, *view.leaving],
            {**plan.decisions, **leaving(view.leaving)},
            observations,
            self._history,
            now=now,
            not_written=self._delivery.not_written,
            overlaps=view.overlaps,
        )
        pool = self._make_pool_status(view, plan, observations, size, now)
        self.outcome = Outcome(zones, pool, engine_outcomes(observations, self._history, self._delivery.not_written))
        reclaims = self._reclaims.look(observations)
        for zone in view.zones:
            if zone.meta.name in reclaims:
                self._recorder.record("TenantZone", zone.meta, reclaims[zone.meta.name])
        began = time.monotonic()
        hasty = max(HASTY_WRITING_SECONDS, began - looking_since)

        def may_go_on() -> bool:
            return time.monotonic() - began < (hasty if self.is_dirty else WRITING_SECONDS)

        waits = [
            await self._statuses.write(view, zones, pool, may_go_on),
            *self._mounts.retry_seconds,
            self._advising.pause_seconds(view.pool),
            0.0 if self._has_new_adjustments(view) else None,
        ]
        self._come_back(min((wait for wait in waits if wait is not None), default=None))


def _now() -> str:
    """Returns the current time in the format of conditions."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

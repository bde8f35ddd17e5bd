"""Keeps one pool as its objects say. Level-triggered: it looks at what is, not at what happened."""

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime

import aiohttp
from kubernetes_asyncio.client import ApiException

from tenantzone_contract.config import ConfigError, parse_config
from tenantzone_operator.acknowledgement import History, Observation
from tenantzone_operator.api import Api, explain
from tenantzone_operator.engines import EngineWatch
from tenantzone_operator.plan import Plan, make_plan
from tenantzone_operator.resources import Pod, Pool
from tenantzone_operator.status import pool_status, zone_status
from tenantzone_operator.store import Key, Store, View
from tenantzone_operator.writing import StatusWriter, write_all

logger = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.05
FIRST_RETRY_SECONDS = 0.2
LAST_RETRY_SECONDS = 5.0


class PoolWorker:
    """
    Args:
        key: the pool's namespace and name. The pool need not exist: its zones are told so.
        store: everything there is.
        api: for what is to be written.
        http: for the engines' reports.
    """

    def __init__(self, key: Key, store: Store, api: Api, http: aiohttp.ClientSession) -> None:
        self._key = key
        self._store = store
        self._api = api
        self._engines = EngineWatch(http, changed=self.mark)
        self._history = History()
        self._is_delivered = False
        self._must_recall = True
        self._told: dict[str, str] = {}
        self._statuses = StatusWriter(store, api)
        self._later: asyncio.TimerHandle | None = None
        self._dirty = asyncio.Event()
        self.attempted_at = time.monotonic()
        """When it last tried to reconcile, successfully or not; of the monotonic clock."""

    @property
    def is_dirty(self) -> bool:
        return self._dirty.is_set()

    def mark(self) -> None:
        """Something has changed, or may have."""
        self._dirty.set()

    def recall(self) -> None:
        """Look into the ConfigMap again: somebody may have changed it."""
        self._must_recall = True
        self.mark()

    async def run(self) -> None:
        """Work until neither the pool nor a zone that names it is left."""
        watching = asyncio.create_task(self._engines.run(), name=f"engines of {'/'.join(self._key)}")
        try:
            await self._work()
        finally:
            watching.cancel()
            if self._later is not None:
                self._later.cancel()

    async def _work(self) -> None:
        retry = FIRST_RETRY_SECONDS
        while True:
            await self._dirty.wait()
            await asyncio.sleep(DEBOUNCE_SECONDS)
            self._dirty.clear()
            view = self._store.view(self._key)
            if view.pool is None and not view.zones:
                return
            self.attempted_at = time.monotonic()
            try:
                await self._reconcile(view)
            except (ApiException, aiohttp.ClientError, TimeoutError) as error:
                logger.warning("pool %s/%s: %s; trying again in %.1f s", *self._key, explain(error), retry)
            except Exception:
                # One pool's trouble must not end the others' work.
                logger.exception("pool %s/%s: trying again in %.1f s", *self._key, retry)
            else:
                retry = FIRST_RETRY_SECONDS
                continue
            # Whether the write that failed took effect is not known.
            self._must_recall = True
            self._dirty.set()
            await asyncio.sleep(retry)
            retry = min(2 * retry, LAST_RETRY_SECONDS)

    async def _reconcile(self, view: View) -> None:
        pool = view.pool
        observations = await self._engines.look_at(view.engines, pool.admin_port) if pool is not None else []
        if pool is not None and (self._must_recall or any(observation.nack for observation in observations)):
            await self._recall(pool)
        sizes = _sizes(pool, observations)
        plan = make_plan(
            pool,
            view.zones,
            in_force=self._history.newest,
            last_generation=pool.status.get("configGeneration", 0) if pool is not None else 0,
            sizes=sizes,
        )
        if pool is not None:
            await self._deliver(pool, view.pods, plan)
        await self._tell(view, plan, observations, sizes)
        if all(seen.report is not None and self._history.acknowledges_newest(seen.report) for seen in observations):
            self._engines.relax()

    async def _recall(self, pool: Pool) -> None:
        """See what the ConfigMap holds. What this worker has given out counts for more, unless it is older."""
        text = await self._api.read_config(pool.meta.namespace, pool.meta.name)
        try:
            found = parse_config(text) if text is not None else None
        except ConfigError as error:
            logger.warning("pool %s/%s: its ConfigMap is repaired, it can't be read: %s", *self._key, error)
            found = None
        newest = self._history.newest
        if found is not None and (newest is None or found.generation > newest.generation):
            self._history.record(found)
            self._is_delivered = True
        else:
            self._is_delivered = found is not None and found == newest
        self._must_recall = False

    async def _deliver(self, pool: Pool, pods: Iterable[Pod], plan: Plan) -> None:
        """Write the ConfigMap if it is another one, then touch the pods that kubelet has not been told about."""
        config = plan.config
        if config is None:
            return
        if config != self._history.newest or not self._is_delivered:
            await self._api.apply_config(pool, config)
            self._history.record(config)
            self._is_delivered = True
            self._engines.hurry()
            logger.info("pool %s/%s: config %d, %d zones", *self._key, config.generation, len(config.zones))
        self._told = {pod.meta.uid: self._told.get(pod.meta.uid, pod.config_hash) for pod in pods}
        await write_all(self._annotate(pod, config.hash) for pod in pods if self._told[pod.meta.uid] != config.hash)

    async def _annotate(self, pod: Pod, config_hash: str) -> None:
        await self._api.annotate(pod, config_hash)
        self._told[pod.meta.uid] = config_hash

    async def _tell(self, view: View, plan: Plan, observations: list[Observation], sizes: set[int]) -> None:
        """Write each status that is another one, and come back for what may be written only later."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        zones = {
            zone.meta.name: zone_status(zone, plan.verdicts[zone.meta.name], observations, self._history, now=now)
            for zone in view.zones
        }
        pool = None
        if view.pool is not None:
            pool = pool_status(view.pool, plan, observations, self._history, sizes=sizes, now=now)
        wait = await self._statuses.write(view, zones, pool)
        if self._later is not None:
            self._later.cancel()
        self._later = asyncio.get_running_loop().call_later(wait, self.mark) if wait is not None else None


def _sizes(pool: Pool | None, observations: Iterable[Observation]) -> set[int]:
    """Blocks of the engines; the smallest that is remembered counts for an engine that never told its own."""
    told = {observation.blocks for observation in observations}
    remembered = pool.status.get("capacityBlocks") if pool is not None else None
    if remembered and (None in told or not told):
        told.add(remembered)
    return {blocks for blocks in told if blocks}

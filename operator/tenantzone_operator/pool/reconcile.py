"""Runs one worker for each pool, and the full listings that correct the store."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

import aiohttp

from tenantzone_operator.engines.admin_key import AdminKey
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.kube.store import Key, Store
from tenantzone_operator.pool.outcome import Outcome
from tenantzone_operator.pool.worker import PoolWorker
from tenantzone_operator.writing.events import Recorder
from tenantzone_operator.writing.status_writer import WritingSlots

logger = logging.getLogger(__name__)

RESYNC_SECONDS = 60.0
RESYNC_PAUSE_SECONDS = 0.5
"""Minimum number of seconds between two listings, however many are requested."""
RETRY_SECONDS = 1.0
NEEDS_CRDS = "the API server lacks the CRD TenantZone or ZonePool: kubectl apply -f crds/"


class Reconciler:
    """Runs a worker for each pool that exists or that a zone names."""

    def __init__(self, store: Store, api: Api, admin_key: AdminKey) -> None:
        self._store = store
        self._api = api
        self._admin_key = admin_key
        self._workers: dict[Key, PoolWorker] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._quotas: WeakValueDictionary[str, ReadingQuota] = WeakValueDictionary()
        """Reading quotas by namespace; a quota lives as long as a worker uses it."""
        self._slots: WeakValueDictionary[str, WritingSlots] = WeakValueDictionary()
        """Writing slots by namespace; they live as long as a worker uses them."""
        self._is_stopped = False
        self._may_plan = False
        self._checked_at = time.monotonic()
        self._recorder = Recorder(api)
        self._recording = asyncio.create_task(self._recorder.run(), name="events")

    def mark(self, key: Key) -> None:
        """Schedule a reconcile of a pool; ignored before the first full listing, because zones may still be missing."""
        if self._is_stopped or not self._may_plan:
            return
        if key not in self._workers:
            self._start(key)
        self._workers[key].mark()

    def mark_namespace(self, namespace: str) -> None:
        """Schedule a reconcile of all pools of a namespace."""
        for key in self._store.pool_keys(namespace):
            self.mark(key)

    def check_all(self) -> None:
        """Schedule a reconcile of all pools, because a listing has just corrected the store."""
        self._may_plan = True
        self._checked_at = time.monotonic()
        for key in self._store.pool_keys() | self._workers.keys():
            self.mark(key)
            if key in self._workers:
                self._workers[key].recall()

    def age_seconds(self) -> float:
        """Returns the seconds since the last attempt of the worker whose last attempt is the longest ago."""
        times = [worker.attempted_at for worker in self._workers.values()]
        return time.monotonic() - min([self._checked_at, *times])

    def without_pods(self) -> tuple[int, int]:
        """Returns the number of served pools whose listing of pods is too old, and the number of all served pools.

        A pool is not served if it does not exist, or if the operator lacks rights for it and never gave it a config.
        """
        served = [worker for worker in self._workers.values() if worker.is_serving]
        return sum(worker.has_stale_pods for worker in served), len(served)

    def outcomes(self) -> Mapping[Key, Outcome]:
        """Returns the outcome of each pool's last reconcile."""
        return {key: worker.outcome for key, worker in self._workers.items() if worker.outcome is not None}

    async def stop(self) -> None:
        """Stop all workers, and return once none is running and no new worker can start."""
        self._is_stopped = True
        tasks = [*self._tasks.values(), self._recording]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, key: Key) -> None:
        quota = self._quotas.setdefault(key[0], ReadingQuota())
        slots = self._slots.setdefault(key[0], WritingSlots())
        worker = PoolWorker(key, self._store, self._api, self._recorder, quota, slots, self._admin_key)
        self._workers[key] = worker
        self._tasks[key] = asyncio.create_task(worker.run(), name=f"pool {'/'.join(key)}")
        self._tasks[key].add_done_callback(lambda _: self._ended(key, worker))

    def _ended(self, key: Key, worker: PoolWorker) -> None:
        del self._workers[key], self._tasks[key]
        if worker.is_dirty:
            # The pool was marked just when its worker ended, so start a new worker.
            self.mark(key)


class Resync:
    """Lists zones and pools at the start, then periodically, and whenever a watch restarts.

    Args:
        store: the store to correct.
        api: lists the objects.
        done: called after each listing.
    """

    def __init__(self, store: Store, api: Api, done: Callable[[], None]) -> None:
        self._store = store
        self._api = api
        self._done = done
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listing = asyncio.Lock()

    def ask(self) -> None:
        """Request a listing, because a watch has restarted and may have missed changes."""
        self._asked.set()

    async def once(self) -> None:
        """List zones and pools once, retrying until the API server answers."""
        while True:
            try:
                await self._list()
            except (RestError, aiohttp.ClientError, TimeoutError) as error:
                is_without_crds = isinstance(error, RestError) and error.status == 404
                logger.warning("listing: %s; retrying", NEEDS_CRDS if is_without_crds else explain(error))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._done()
                return

    def start(self) -> None:
        """Start the listings in the background."""
        self._task = asyncio.create_task(self._run(), name="resync")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESYNC_SECONDS):
                    await self._asked.wait()
            await asyncio.sleep(RESYNC_PAUSE_SECONDS)
            self._asked.clear()
            await self.once()

    async def _list(self) -> None:
        store, api = self._store, self._api
        # List one kind after the other, which halves the memory, and leaves no listing running if the other fails.
        async with self._listing:
            while not store.zones.relist(*await api.list_zones(store.zones.read_listed)):
                pass
            while not store.pools.relist(*await api.list_pools(store.pools.read_listed)):
                pass

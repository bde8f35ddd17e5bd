"""Runs one worker for each pool, and lists all zones and pools periodically to correct the store."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from tenantzone_operator.engines.admin_key import AdminKey
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.rest import REQUEST_ERRORS, RestError
from tenantzone_operator.kube.store import Key, Store
from tenantzone_operator.pool.outcome import Outcome
from tenantzone_operator.pool.worker import PoolWorker
from tenantzone_operator.writing.events import Recorder
from tenantzone_operator.writing.status_writer import WritingSlots

logger = logging.getLogger(__name__)

RESYNC_SECONDS = 60.0
RESYNC_PAUSE_SECONDS = 0.5
"""Minimum number of seconds between two listings, even if more listings are requested."""
RETRY_SECONDS = 1.0
NEEDS_CRDS = "the API server lacks the CRD TenantZone or ZonePool; run kubectl apply -f crds/"


class Reconciler:
    """Reconciles pools while this process leads, with a worker for each pool that exists or that a zone names.

    A standby ignores changes, because a new leader first reconciles all pools. No state survives from an earlier term.

    Args:
        store: contains the zones and pools.
        api: a client of the API server.
        admin_key: returns the tokens for the engines' admin ports.
    """

    def __init__(self, store: Store, api: Api, admin_key: AdminKey) -> None:
        self._store = store
        self._api = api
        self._admin_key = admin_key
        self._workers: dict[Key, PoolWorker] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._quotas: WeakValueDictionary[str, ReadingQuota] = WeakValueDictionary()
        """Reading quotas by namespace. A quota exists only as long as a worker uses it."""
        self._slots: WeakValueDictionary[str, WritingSlots] = WeakValueDictionary()
        """Writing slots by namespace. They exist only as long as a worker uses them."""
        self._recorder: Recorder | None = None
        """Recorder of the term's Events; None on a standby and before the term's first full listing."""
        self._checked_at: float | None = None
        """Monotonic time of the term's last full listing, or of the term's start; None on a standby."""

    @asynccontextmanager
    async def leading(self, list_all: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Reconcile pools for one term, while the ``with`` block runs. The block begins after all pools are scheduled.

        Args:
            list_all: called before the first reconcile; corrects the store. Based on outdated objects, a new leader
                would undo the previous leader's work.
        """
        self._checked_at = time.monotonic()
        recording: list[asyncio.Task[None]] = []
        try:
            await list_all()
            self._recorder = Recorder(self._api)
            recording.append(asyncio.create_task(self._recorder.run(), name="events"))
            self.check_all()
            yield
        finally:
            # Without a recorder, `mark` starts no more workers.
            self._recorder = self._checked_at = None
            tasks = [*self._tasks.values(), *recording]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def mark(self, key: Key) -> None:
        """Schedule a reconcile of a pool. Before the term's first full listing, do nothing: zones may be missing."""
        if self._recorder is None:
            return
        if key not in self._workers:
            self._start(key, self._recorder)
        self._workers[key].mark()

    def mark_namespace(self, namespace: str) -> None:
        """Schedule a reconcile of all pools of a namespace."""
        for key in self._store.pool_keys(namespace) if self._recorder is not None else ():
            self.mark(key)

    def check_all(self) -> None:
        """Schedule a reconcile of all pools, because a listing has just corrected the store."""
        if self._recorder is None:
            return
        self._checked_at = time.monotonic()
        for key in self._store.pool_keys() | self._workers.keys():
            self.mark(key)
            if key in self._workers:
                self._workers[key].recall()

    def age_seconds(self) -> float | None:
        """Returns the larger of two ages in seconds: of the last full listing, and of the oldest attempt to reconcile.

        Only the last attempt of each pool counts. On a standby, returns None.
        """
        if self._checked_at is None:
            return None
        times = [worker.attempted_at for worker in self._workers.values()]
        return time.monotonic() - min([self._checked_at, *times])

    def without_pods(self) -> tuple[int, int]:
        """Returns the number of served pools with an outdated listing of pods, and the number of all served pools.

        Both are 0 on a standby. A pool is not served if it does not exist, or if the operator lacks rights for it and
        never gave it a config.
        """
        served = [worker for worker in self._workers.values() if worker.is_serving]
        return sum(worker.has_stale_pods for worker in served), len(served)

    def outcomes(self) -> Mapping[Key, Outcome]:
        """Returns the outcome of each pool's last reconcile; empty on a standby."""
        return {key: worker.outcome for key, worker in self._workers.items() if worker.outcome is not None}

    def _start(self, key: Key, recorder: Recorder) -> None:
        quota = self._quotas.setdefault(key[0], ReadingQuota())
        slots = self._slots.setdefault(key[0], WritingSlots())
        worker = PoolWorker(key, self._store, self._api, recorder, quota, slots, self._admin_key)
        self._workers[key] = worker
        self._tasks[key] = asyncio.create_task(worker.run(), name=f"pool {'/'.join(key)}")
        self._tasks[key].add_done_callback(lambda _: self._ended(key, worker))

    def _ended(self, key: Key, worker: PoolWorker) -> None:
        del self._workers[key], self._tasks[key]
        if worker.is_dirty:
            # The pool was marked while its worker ended, so start a new worker.
            self.mark(key)


class Resync:
    """Lists all zones and pools at the start, then periodically, and whenever a watch restarts.

    Args:
        store: the store to correct.
        api: lists the objects.
        done: called after each listing.
    """

    def __init__(self, store: Store, api: Api, done: Callable[[], None]) -> None:
        self._store = store
        self._api = api
        self._done = done
        self._listed_at: float | None = None
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listing = asyncio.Lock()

    def ask(self) -> None:
        """Request a listing, because a watch has restarted and may have missed changes meanwhile."""
        self._asked.set()

    async def once(self) -> None:
        """List zones and pools once, retrying until the API server answers."""
        while True:
            try:
                await self._list()
            except REQUEST_ERRORS as error:
                is_without_crds = isinstance(error, RestError) and error.status == 404
                logger.warning(
                    "can't list zones and pools: %s; retrying", NEEDS_CRDS if is_without_crds else explain(error)
                )
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.note_listing()
                return

    def note_listing(self) -> None:
        """Record that a listing has just corrected the store."""
        self._listed_at = time.monotonic()
        self._done()

    def age_seconds(self) -> float | None:
        """Returns the seconds since the last listing of zones and pools; None before the first listing."""
        return time.monotonic() - self._listed_at if self._listed_at is not None else None

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
        # List the kinds one after the other. That halves the memory, and a failure leaves no other listing running.
        async with self._listing:
            while not store.zones.relist(*await api.list_zones(store.zones.read_listed)):
                pass
            while not store.pools.relist(*await api.list_pools(store.pools.read_listed)):
                pass

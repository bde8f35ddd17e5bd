"""Builds the operator and runs it."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import kopf

from tenantzone_contract.kube_names import OPERATOR, OPERATOR_NAMESPACE
from tenantzone_operator.cache_manager.client import ManagerAddress, ManagerClient
from tenantzone_operator.cache_manager.reconciler import ManagerReconciler
from tenantzone_operator.console.server import ReplicaState, console_served
from tenantzone_operator.console.storages import list_stored
from tenantzone_operator.engines.admin_key import AdminKey
from tenantzone_operator.handlers import make_registry, make_settings
from tenantzone_operator.kube.api import Api, connected, explain
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.pod_watch import list_selected
from tenantzone_operator.kube.rest import Rest
from tenantzone_operator.kube.store import Store
from tenantzone_operator.leader.leadership import Alone, Leadership, fence, new_identity
from tenantzone_operator.leader.lease import Election, LeaseObject, Timing
from tenantzone_operator.pool.reconcile import RESYNC_SECONDS, Reconciler, Resync
from tenantzone_operator.serving.exposition import metrics_served
from tenantzone_operator.serving.health import health_served
from tenantzone_operator.serving.pool_metrics import OperatorCollector

logger = logging.getLogger(__name__)

_THREADS = 2

STUCK_SECONDS = 3 * RESYNC_SECONDS
"""A leader's liveness probe fails if the leader has not tried to reconcile for more than this number of seconds."""
_STALE_SECONDS = 2.5 * RESYNC_SECONDS
"""A process is ready only if its last listing is at most this number of seconds old."""
_SILENCE_SECONDS = 10.0
"""Seconds without an answer from the API server after which a process is not ready."""
_PAUSE_SECONDS = 1.0
_KOPF_SECONDS = 8.0
"""Seconds after which kopf's remaining tasks are cancelled by force. kopf itself allows its tasks five seconds."""


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Namespace, name and timing of the Lease for the leader election."""

    namespace: str
    name: str
    timing: Timing


@dataclass(frozen=True, slots=True)
class Options:
    """Options from the command line."""

    connection: Connection
    namespace: str | None
    """The only namespace that the operator watches; None for all namespaces."""
    probes: tuple[str, int] | None
    """Host and port of the health probes; None for no probes."""
    lease: LeaseOptions | None
    """The Lease for the leader election; None to lead without an election, which is only safe with one replica."""
    own_namespace: str = OPERATOR_NAMESPACE
    """Namespace of the Secret with the operator's admin key."""
    metrics: tuple[str, int] | None = None
    """Host and port of the metrics endpoint; None for no metrics."""
    console_port: int | None = None
    """Port of the console on the loopback address; None for no console."""
    manager: ManagerAddress | None = None
    """Address of the KV-cache manager; None to ignore KVStorages and KVCacheGroups."""


class Operator:
    """One process of the operator. It watches objects, answers probes, and reconciles while it leads.

    Args:
        options: the options from the command line.
        api: a client of the API server.
        reconciler: reconciles pools while this process leads.
        manager: reconciles the KV-cache manager while this process leads; None without a manager.
        leadership: decides when this process leads.
        store: receives the objects that the watches see.
    """

    def __init__(
        self,
        options: Options,
        api: Api,
        reconciler: Reconciler,
        manager: ManagerReconciler | None,
        leadership: Alone | Leadership,
        store: Store,
    ) -> None:
        self._options = options
        self._api = api
        self.reconciler = reconciler
        self._manager = manager
        self.leadership = leadership
        self._store = store
        self.resync = Resync(store, api, done=reconciler.check_all)

    async def run(self) -> None:
        """Watch objects, and lead if possible, until SIGTERM or SIGINT."""
        stop = asyncio.Event()
        _stop_on_signals(stop)
        while not stop.is_set():
            await _unless(stop, self.resync.once())
            if not stop.is_set():
                where = self._options.namespace or "all namespaces"
                logger.info("watching %s: %d pools, %d zones", where, len(self._store.pools), len(self._store.zones))
                await self._watch(stop)
                await _unless(stop, asyncio.sleep(_PAUSE_SECONDS))

    async def _watch(self, stop: asyncio.Event) -> None:
        """Run kopf and the leader election, until ``stop`` is set or kopf fails."""
        leading = asyncio.create_task(self.leadership.run(self._lead), name="leadership")
        # If the election fails, end this process.
        leading.add_done_callback(lambda task: None if task.cancelled() else stop.set())

        async def end() -> None:
            self.resync.stop()
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)

        self.resync.start()
        try:
            registry = make_registry(self._options.connection, self._store, self.reconciler, self.resync, end)
            await _run_kopf(registry, self._options.namespace, stop)
        except Exception as error:
            logger.warning("watching objects failed: %s; starting again", explain(error))
        finally:
            await end()
        if not leading.cancelled():
            leading.result()

    async def _lead(self) -> None:
        """Do the leader's work for one term, until the task is cancelled."""
        async with self.reconciler.leading(self.resync.once):
            await (asyncio.Event().wait() if self._manager is None else self._manager.run())

    def live(self) -> tuple[bool, dict[str, Any]]:
        age = self.reconciler.age_seconds()
        shown = {
            "leading": self.leadership.is_leading,
            "secondsSinceReconcile": _rounded(age),
            "writes": self._api.writes,
        }
        return age is None or age <= STUCK_SECONDS, shown

    def ready(self) -> tuple[bool, dict[str, Any]]:
        age, silence = self.resync.age_seconds(), self.leadership.silence_seconds
        without_pods, pools = self.reconciler.without_pods()
        shown = {
            "secondsSinceListing": _rounded(age),
            "secondsWithoutAnswer": _rounded(silence),
            "poolsWithoutPods": without_pods,
        }
        is_listed = age is not None and age <= _STALE_SECONDS
        # One pool with outdated pods must not make the process unready, so the pods of all pools must be outdated.
        has_pods = without_pods < max(pools, 1)
        return is_listed and has_pods and silence <= _SILENCE_SECONDS, shown

    def replica_state(self) -> ReplicaState:
        """Returns this replica's current state, for the console."""
        is_ready, _ = self.ready()
        has_listed = self.resync.age_seconds() is not None
        return ReplicaState(is_leading=self.leadership.is_leading, is_ready=is_ready, has_listed=has_listed)


async def run(options: Options) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises:
        CredentialsError: the options contain no usable credentials for the cluster.
    """
    # Work on thousands of zones runs in threads. Because of the interpreter lock, more threads would only cost memory.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="aside"))
    async with AsyncExitStack() as stack:
        leadership: Alone | Leadership = Alone()
        if options.lease is not None:
            # Use separate connections for the Lease, because a renewal must not wait behind a thousand writes.
            rest = await stack.enter_async_context(Rest(options.connection.for_kopf))
            lease = LeaseObject(rest, options.lease.namespace, options.lease.name)
            leadership = Leadership(Election(lease, new_identity(), options.lease.timing))
        traces = [fence(lambda: leadership.is_leading)]
        api = await stack.enter_async_context(connected(options.connection, options.namespace, trace_configs=traces))
        store = Store(has_manager=options.manager is not None)
        admin_key = AdminKey(api, options.own_namespace)
        manager = None
        if options.manager is not None:
            client = await stack.enter_async_context(ManagerClient(options.manager, trace_configs=traces))
            manager = ManagerReconciler(api, client, store, options.namespace)
        reconciler = Reconciler(store, api, admin_key)
        operator = Operator(options, api, reconciler, manager, leadership, store)
        if options.probes is not None:
            await stack.enter_async_context(health_served(*options.probes, live=operator.live, ready=operator.ready))
        if options.metrics is not None:
            collector = OperatorCollector(
                lambda: leadership.is_leading,
                reconciler.age_seconds,
                reconciler.without_pods,
                reconciler.outcomes,
                lambda: None if manager is None else manager.answers,
            )
            await stack.enter_async_context(metrics_served(*options.metrics, collector))
        if options.console_port is not None:
            console = console_served(
                options.console_port,
                store,
                partial(list_selected, api),
                admin_key.look_up,
                operator.replica_state,
                None if manager is None else partial(list_stored, api),
            )
            await stack.enter_async_context(console)
        learning = asyncio.create_task(admin_key.keep_learning(), name="admin key")
        try:
            await operator.run()
        finally:
            learning.cancel()
            await asyncio.gather(learning, return_exceptions=True)


async def _run_kopf(registry: kopf.OperatorRegistry, namespace: str | None, stop: asyncio.Event) -> None:
    others = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=make_settings(),
        standalone=True,
        # Without an identity, kopf would look up the user's name, and a pod's user id may have no name. Nothing uses
        # this identity.
        identity=cast(Any, OPERATOR),
        clusterwide=namespace is None,
        namespaces=[namespace] if namespace is not None else [],
        stop_flag=stop,
    )
    # Replace the signal handlers that kopf has just set, because kopf ignores signals while it stops after an error.
    _stop_on_signals(stop)
    running = asyncio.create_task(kopf.run_tasks(tasks, ignored=others), name="kopf")
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await end_stubborn(running, others)
    running.result()


async def end_stubborn(
    running: asyncio.Task[None], others: set[asyncio.Task[Any]], patience: float = _KOPF_SECONDS
) -> None:
    """Wait until kopf has stopped, after one of its root tasks has ended.

    kopf cancels its remaining tasks once, and then waits for them forever. If the session of a watch was closed at that
    moment, the watch survives the cancellation: it tries to log in again, and waits for a task that has ended already.

    Args:
        running: the task that runs all of kopf.
        others: tasks that were started before kopf, and must keep running.
        patience: seconds to wait for kopf. Afterwards, this function cancels all of kopf's tasks repeatedly.
    """
    await asyncio.wait({running}, timeout=patience)
    while not running.done():
        for task in asyncio.all_tasks() - others - {running}:
            task.cancel()
        await asyncio.wait({running}, timeout=_PAUSE_SECONDS)


def _stop_on_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def _unless(stop: asyncio.Event, what: Coroutine[Any, Any, None]) -> None:
    """Await the coroutine, but cancel it when ``stop`` is set."""
    doing, stopping = asyncio.create_task(what), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (doing, stopping):
            task.cancel()
        await asyncio.gather(doing, stopping, return_exceptions=True)
    if not doing.cancelled():
        doing.result()


def _rounded(seconds: float | None) -> float | None:
    """Round seconds to one decimal; returns None for infinity, which JSON can't express."""
    return round(seconds, 1) if seconds is not None and seconds < float("inf") else None

"""Defines the handlers that kopf calls. They only update the store and schedule reconciles of pools.

Handlers for objects are ``on.event`` handlers, because for these, kopf adds neither finalizers nor annotations to the
objects. kopf sends an event without a type for each listed object, at the start and when a watch restarts.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import kopf

from tenantzone_contract.kube_names import GROUP, POOLS, VERSION, ZONES
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.credentials.login import KopfLogin
from tenantzone_operator.kube.store import Store
from tenantzone_operator.pool.reconcile import Reconciler, Resync

_DELETED = "DELETED"
_CONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 30.0
_OBJECTS_AT_ONCE = 100
_IDLE_SECONDS = 0.2


class Backoffs:
    """Endless delays between attempts, so that kopf does not give up while the API server is unreachable."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.1, 0.2, 0.5, 1.0), itertools.repeat(2.0))


class NoDiffs(kopf.DiffBaseStorage):
    """A diff storage for kopf that stores nothing, because the handlers need the current state, not a diff."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


def make_settings() -> kopf.OperatorSettings:
    """Returns settings for kopf: it writes no Events, needs no additional rights, and retries forever."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # Do not watch CRDs and namespaces, which would need additional rights.
    settings.scanning.disabled = True
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = _CONNECT_SECONDS
    settings.networking.request_timeout = _REQUEST_SECONDS
    # Limit the objects per chunk, because kopf's default would keep 5,000 objects and tasks in memory after the start.
    settings.watching.chunk_size = _OBJECTS_AT_ONCE
    settings.queueing.idle_timeout = _IDLE_SECONDS
    # By default, kopf would kill the process ten minutes after a watch failed. The operator restarts watches itself.
    settings.process.ultimate_exiting_timeout = None
    # kopf writes neither finalizers nor annotations today. If a future handler makes kopf write some, use these names.
    settings.persistence.finalizer = f"{GROUP}/operator"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"operator.{GROUP}")
    settings.persistence.diffbase_storage = NoDiffs()
    return settings


def make_registry(
    connection: Connection, store: Store, reconciler: Reconciler, resync: Resync, end: Callable[[], Awaitable[None]]
) -> kopf.OperatorRegistry:
    """Returns a registry with all handlers.

    Args:
        connection: provides the credentials with which kopf logs in.
        store: receives the objects from watches.
        reconciler: reconciles changed pools.
        resync: lists all objects when a watch restarts.
        end: called when kopf ends; ends all tasks that were started during kopf's run.
    """
    registry = kopf.OperatorRegistry()

    login = KopfLogin(connection)

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await login.log_in()

    def ask_if_listed(event: Body) -> None:
        if event["type"] is None:
            resync.ask()

    @kopf.on.event(GROUP, VERSION, ZONES, registry=registry)
    async def zone_changed(event: Body, **_: Any) -> None:
        ask_if_listed(event)
        body = event["object"]
        if event["type"] == _DELETED:
            gone = store.zones.remove(body)
            zones = [gone] if gone is not None else []
        else:
            before, now = store.zones.put(body)
            zones = [zone for zone in (before, now) if zone is not None] if before != now else []
        for zone in zones:
            reconciler.mark((zone.meta.namespace, zone.pool))

    @kopf.on.event(GROUP, VERSION, POOLS, registry=registry)
    async def pool_changed(event: Body, **_: Any) -> None:
        ask_if_listed(event)
        body = event["object"]
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        if event["type"] == _DELETED:
            store.pools.remove(body)
        else:
            before, now = store.pools.put(body)
            if now is None or before == now:
                return
        reconciler.mark((namespace, name))
        # Mark the other pools too, because after the change, pods that two pools select may belong to another pool.
        reconciler.mark_namespace(namespace)

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        # End the operator's tasks, because kopf waits for all tasks that were started during its run.
        await end()

    return registry

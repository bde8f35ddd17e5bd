"""Defines the handlers that kopf calls, which only store events and schedule reconciles of pools.

All of them are ``on.event`` handlers, for which kopf adds neither finalizers nor annotations to objects. kopf sends an
event without a type for each object of a listing, at the start and when a watch restarts.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import kopf

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.credentials.login import KopfLogin
from tenantzone_operator.kube.names import GROUP, POOLS, VERSION, ZONES
from tenantzone_operator.kube.store import Store
from tenantzone_operator.leader.leader import Leader
from tenantzone_operator.pool.reconcile import Resync

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
    """A storage for kopf that keeps no copies of objects, because handlers need the current state, not a diff."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


def make_settings() -> kopf.OperatorSettings:
    """Returns kopf's settings, with which it writes no Events, needs no additional rights, and retries forever."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # Do not watch CRDs and namespaces, which would need additional rights.
    settings.scanning.disabled = True
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = _CONNECT_SECONDS
    settings.networking.request_timeout = _REQUEST_SECONDS
    # With kopf's default, 5,000 objects and as many tasks stay in memory for a while after the start.
    settings.watching.chunk_size = _OBJECTS_AT_ONCE
    settings.queueing.idle_timeout = _IDLE_SECONDS
    # kopf would kill the process ten minutes after it failed to repair a watch. The operator repairs watches itself.
    settings.process.ultimate_exiting_timeout = None
    # kopf does not write these names today. If a future handler makes kopf write them, they must be the project's own.
    settings.persistence.finalizer = f"{GROUP}/operator"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"operator.{GROUP}")
    settings.persistence.diffbase_storage = NoDiffs()
    return settings


def make_registry(
    connection: Connection, store: Store, leader: Leader, resync: Resync, end: Callable[[], Awaitable[None]]
) -> kopf.OperatorRegistry:
    """Returns all handlers, bound to the objects that they call.

    Args:
        connection: how kopf logs in.
        store: receives the objects that the watches see.
        leader: receives the keys of changed pools.
        resync: gets a request for a listing when a watch restarts.
        end: called when kopf ends, to end all tasks that were started during its run.
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
            leader.mark((zone.meta.namespace, zone.pool))

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
        leader.mark((namespace, name))
        # Mark the other pools too, because the change may move pods that two pools select to the other pool.
        leader.mark_namespace(namespace)

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        # kopf waits for all tasks that were started during its run, and the operator's tasks never end on their own.
        await end()

    return registry

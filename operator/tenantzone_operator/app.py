"""Puts the operator together and runs it."""

import logging
from dataclasses import dataclass
from typing import Any, cast

import kopf

from tenantzone_operator.api import connected
from tenantzone_operator.connection import Connection
from tenantzone_operator.engines import new_http_session
from tenantzone_operator.handlers import make_registry, make_settings
from tenantzone_operator.reconcile import Reconciler, Resync
from tenantzone_operator.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    connection: Connection
    namespace: str | None
    """The only one that is served; None: all."""
    probe_url: str | None
    """Where health is served; None: nowhere."""


async def run(options: Options) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        CredentialsError: the cluster can't be used as asked.
    """
    store = Store()
    async with connected(options.connection, options.namespace) as api, new_http_session() as http:
        reconciler = Reconciler(store, api, http)
        resync = Resync(store, api, done=reconciler.check_all)
        await resync.once()
        where = options.namespace or "all namespaces"
        logger.info("watching %s: %d pools, %d zones", where, len(list(store.pools)), len(list(store.zones)))
        resync.start()
        await kopf.operator(
            registry=make_registry(options.connection, store, reconciler, resync, api),
            settings=make_settings(),
            standalone=True,
            # kopf would ask for the user's name, and a pod's user id need not have one. Nobody reads it: no peering.
            identity=cast(Any, "tenantzone-operator"),
            clusterwide=options.namespace is None,
            namespaces=[options.namespace] if options.namespace is not None else [],
            liveness_endpoint=options.probe_url,
        )

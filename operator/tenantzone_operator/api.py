"""The API server, as the operator uses it: full listings, and the few writes that it makes.

Each write is a server-side apply of just our fields, or a merge patch of one annotation, so what others have set on the
objects survives.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kubernetes_asyncio.client import ApiClient, ApiException, CoreV1Api, CustomObjectsApi

from tenantzone_contract.config import CONFIG_HASH_ANNOTATION, CONFIG_KEY, RuntimeConfig, dump_config
from tenantzone_operator.connection import Connection
from tenantzone_operator.names import (
    FIELD_MANAGER,
    GROUP,
    MANAGED_BY_LABEL,
    POOL_LABEL,
    POOLS,
    VERSION,
    ZONES,
    config_map_name,
)
from tenantzone_operator.resources import Body, Meta, Pod, Pool

_TIMEOUT_SECONDS = 15.0
_PAGE = 500
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class Api:
    """
    Args:
        client: connected.
        namespace: the only one that is listed; None: all.
    """

    def __init__(self, client: ApiClient, namespace: str | None) -> None:
        self._core = CoreV1Api(client)
        self._custom = CustomObjectsApi(client)
        self._namespace = namespace
        self.writes = 0
        """How many were made since the start."""

    async def list_zones(self) -> list[Body]:
        return await self._list_custom(ZONES)

    async def list_pools(self) -> list[Body]:
        return await self._list_custom(POOLS)

    async def list_pods(self) -> list[Body]:
        if self._namespace is None:
            return await _pages(self._core.list_pod_for_all_namespaces)
        return await _pages(self._core.list_namespaced_pod, self._namespace)

    async def read_config(self, namespace: str, pool: str) -> str | None:
        """The text of the pool's runtime config; None if there is none."""
        try:
            found = await self._core.read_namespaced_config_map(
                config_map_name(pool), namespace, _request_timeout=_TIMEOUT_SECONDS
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise
        return (found.data or {}).get(CONFIG_KEY)

    async def apply_config(self, pool: Pool, config: RuntimeConfig) -> None:
        name = config_map_name(pool.meta.name)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "labels": {MANAGED_BY_LABEL: FIELD_MANAGER, POOL_LABEL: pool.meta.name},
                "ownerReferences": [_owner(pool.meta)],
            },
            "data": {CONFIG_KEY: dump_config(config)},
        }
        self.writes += 1
        await self._core.patch_namespaced_config_map(
            name, pool.meta.namespace, body, **_applied(), _content_type=_APPLY
        )

    async def annotate(self, pod: Pod, config_hash: str) -> None:
        """Make kubelet sync the pod's volumes."""
        body = {"metadata": {"uid": pod.meta.uid, "annotations": {CONFIG_HASH_ANNOTATION: config_hash}}}
        self.writes += 1
        await self._core.patch_namespaced_pod(
            pod.meta.name,
            pod.meta.namespace,
            body,
            field_manager=FIELD_MANAGER,
            _request_timeout=_TIMEOUT_SECONDS,
            _content_type=_MERGE,
        )

    async def apply_zone_status(self, meta: Meta, status: Mapping[str, Any]) -> Body:
        """Returns the zone as it is then."""
        return await self._apply_status("TenantZone", ZONES, meta, status)

    async def apply_pool_status(self, meta: Meta, status: Mapping[str, Any]) -> Body:
        """Returns the pool as it is then."""
        return await self._apply_status("ZonePool", POOLS, meta, status)

    async def _apply_status(self, kind: str, plural: str, meta: Meta, status: Mapping[str, Any]) -> Body:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind,
            # With the uid a status is never written onto another object of the same name.
            "metadata": {"name": meta.name, "uid": meta.uid},
            "status": status,
        }
        self.writes += 1
        written: Body = await self._custom.patch_namespaced_custom_object_status(
            GROUP, VERSION, meta.namespace, plural, meta.name, body, **_applied(), _content_type=_APPLY
        )
        return written

    async def _list_custom(self, plural: str) -> list[Body]:
        if self._namespace is None:
            return await _pages(self._custom.list_cluster_custom_object, GROUP, VERSION, plural)
        return await _pages(self._custom.list_namespaced_custom_object, GROUP, VERSION, self._namespace, plural)


@asynccontextmanager
async def connected(connection: Connection, namespace: str | None) -> AsyncIterator[Api]:
    async with ApiClient(await connection.configuration()) as client:
        yield Api(client, namespace)


def is_gone(error: ApiException) -> bool:
    """Whether a write failed because the object was deleted or replaced; an event tells, or has told, the rest."""
    return error.status in (404, 409)


def explain(error: Exception) -> str:
    """One line for the log."""
    if isinstance(error, ApiException):
        try:
            return f"{error.status} {json.loads(error.body)['message']}"
        except (TypeError, ValueError, KeyError):
            return f"{error.status} {error.reason}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _applied() -> dict[str, Any]:
    return {"field_manager": FIELD_MANAGER, "force": True, "_request_timeout": _TIMEOUT_SECONDS}


def _owner(meta: Meta) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ZonePool",
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }


async def _pages(list_call: Any, *args: Any) -> list[Body]:
    """All objects of a kind as plain JSON, page by page."""
    items: list[Body] = []
    more: dict[str, str] = {}
    while True:
        response = await list_call(
            *args, limit=_PAGE, **more, _preload_content=False, _request_timeout=_TIMEOUT_SECONDS
        )
        if response.status != 200:
            raise ApiException(http_resp=response)
        page = await response.json()
        items += page["items"]
        token = page["metadata"].get("continue")
        if not token:
            return items
        more = {"_continue": token}

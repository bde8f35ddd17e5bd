"""The operator's calls to the API server: full listings, watches and a few writes.

Updates are server-side applies or merge patches of the operator's own fields, so that other clients' fields survive.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import aiohttp

from tenantzone_contract.kube_names import (
    API,
    GROUP,
    KINDS,
    OPERATOR,
    POOLS,
    VERSION,
    ZONES,
    config_map_name,
    resource_path,
)
from tenantzone_contract.zone_config.packing import ConfigFiles
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.config_map import ConfigMap, config_map_labels, data_to_write, read_config_map
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.resources import Meta, Pod, Pool
from tenantzone_operator.kube.rest import Rest, RestError

T = TypeVar("T")

_PAGE = 100
"""Number of objects per page; only one page of raw objects is in memory at a time."""
_GRACE_SECONDS = 5.0
"""Seconds that the API server may take to close a watch after the watch's timeout."""
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_APPLIED = {"fieldManager": OPERATOR, "force": "true"}
_PATCHED = {"fieldManager": OPERATOR}
_ONLY_METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
_ONLY_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
_CORE = "/api/v1"
_EVENTS = "/apis/events.k8s.io/v1"


class Api:
    """A client of the API server with the calls that the operator makes.

    Args:
        rest: a connected client.
        namespace: the only namespace that is listed; None for all.
    """

    def __init__(self, rest: Rest, namespace: str | None) -> None:
        self.rest = rest
        self._namespace = namespace
        self.turn = asyncio.Lock()
        """Lock that lets only one background write at a time use the API server's capacity."""
        self.writes = 0
        """Number of writes since the start."""

    async def list_zones(self, read: Callable[[Body], T]) -> tuple[list[T], int]:
        """Returns all TenantZones, each converted by ``read``, and the listing's resource version."""
        return await self._list(resource_path(API, self._namespace, ZONES), {}, read)

    async def list_pools(self, read: Callable[[Body], T]) -> tuple[list[T], int]:
        return await self._list(resource_path(API, self._namespace, POOLS), {}, read)

    async def list_cluster(self, plural: str, read: Callable[[Body], T]) -> tuple[list[T], int]:
        """Returns all objects of a cluster-scoped resource in TenantZone's API, and the listing's resource version."""
        return await self._list(resource_path(API, None, plural), {}, read)

    async def list_pods(self, namespace: str, query: str, read: Callable[[Body], T]) -> tuple[list[T], int]:
        """Returns the pods of a namespace that match the label selector, and the listing's resource version."""
        return await self._list(resource_path(_CORE, namespace, "pods"), {"labelSelector": query}, read)

    def watch_pods(
        self, namespace: str, query: str, version: int, seconds: int
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Iterates over pod events for ``seconds``, starting after the resource version of a listing.

        A pod whose labels stop matching is reported as deleted.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: see `Rest.watch`.
        """
        return self._watch(resource_path(_CORE, namespace, "pods"), {"labelSelector": query}, version, seconds)

    def watch_cluster(self, plural: str, version: int, seconds: int) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the events of a cluster-scoped resource in TenantZone's API, like `watch_pods`."""
        return self._watch(resource_path(API, None, plural), {}, version, seconds)

    async def list_secret(self, namespace: str, name: str, read: Callable[[Body], T]) -> tuple[list[T], int]:
        """Returns a list with the metadata of the Secret, if it exists, and the listing's resource version.

        The call selects the Secret by name, so that an RBAC rule with this resource name is enough.
        """
        path, query = resource_path(_CORE, namespace, "secrets"), {"fieldSelector": f"metadata.name={name}"}
        return await self._list(path, query, read, _ONLY_LIST)

    def watch_secret(
        self, namespace: str, name: str, version: int, seconds: int
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the events of a Secret, with its metadata, like `watch_pods`."""
        path, query = resource_path(_CORE, namespace, "secrets"), {"fieldSelector": f"metadata.name={name}"}
        return self._watch(path, query, version, seconds, _ONLY_METADATA)

    async def read_config(self, namespace: str, pool: str) -> ConfigMap | None:
        """Returns the ConfigMap with the name of the pool's config, or None. Any client may have created it."""
        found = await self._read_config(namespace, pool, {})
        return None if found is None else read_config_map(found)

    async def config_version(self, namespace: str, pool: str) -> str | None:
        """Returns the resource version of the pool's ConfigMap; None if it does not exist."""
        found = await self._read_config(namespace, pool, _ONLY_METADATA)
        return None if found is None else str(found["metadata"]["resourceVersion"])

    async def _read_config(self, namespace: str, pool: str, headers: Mapping[str, str]) -> Body | None:
        path = resource_path(_CORE, namespace, "configmaps", config_map_name(pool))
        try:
            return await self.rest.call("GET", path, headers=headers)
        except RestError as error:
            if error.status == 404:
                return None
            raise

    async def write_config(self, pool: Pool, files: ConfigFiles, found: ConfigMap | None) -> ConfigMap:
        """Write the pool's runtime config into its ConfigMap.

        Args:
            pool: the pool that the config is for.
            files: the complete config.
            found: the ConfigMap to replace; None to create it.

        Returns:
            The ConfigMap as written.

        Raises:
            RestError: the request failed. Status 409 means that the ConfigMap has changed since ``found`` was read, or
                that it already exists although ``found`` is None.
        """
        name = config_map_name(pool.meta.name)
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "labels": config_map_labels(pool.meta.name),
                "ownerReferences": [_owner(pool.meta)],
            },
            **data_to_write(files, found),
        }
        if found is None:
            # Use POST, because a server-side apply would overwrite a ConfigMap that another client has just created.
            path = resource_path(_CORE, pool.meta.namespace, "configmaps")
            return read_config_map(await self._write("POST", path, body, "application/json", _PATCHED))
        # Use a merge patch, which replaces all owner references. A server-side apply would keep references to a
        # deleted pool of the same name.
        body["metadata"] |= {"resourceVersion": found.version, "uid": found.uid}
        path = resource_path(_CORE, pool.meta.namespace, "configmaps", name)
        return read_config_map(await self._write("PATCH", path, body, _MERGE, _PATCHED))

    async def read_secret(self, namespace: str, name: str) -> dict[str, str] | None:
        """Returns the data of a Secret, in base64; None if the Secret does not exist."""
        try:
            found = await self.rest.call("GET", resource_path(_CORE, namespace, "secrets", name))
        except RestError as error:
            if error.status == 404:
                return None
            raise
        return dict(found.get("data") or {})

    async def create_secret(
        self, namespace: str, name: str, data: Mapping[str, bytes], metadata: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Create a Secret.

        Raises:
            RestError: the request failed. Status 409 means that the Secret already exists.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, **metadata},
            "type": "Opaque",
            "data": {entry: b64encode(content).decode() for entry, content in data.items()},
        }
        await self._write("POST", resource_path(_CORE, namespace, "secrets"), body, "application/json", _PATCHED)

    async def create_pool_secret(self, pool: Pool, name: str, data: Mapping[str, bytes]) -> None:
        """Create a Secret that Kubernetes deletes together with the pool.

        Raises:
            RestError: the request failed. Status 409 means that the Secret already exists.
        """
        metadata = {"labels": config_map_labels(pool.meta.name), "ownerReferences": [_owner(pool.meta)]}
        await self.create_secret(pool.meta.namespace, name, data, metadata)

    async def annotate(self, pod: Pod, annotation: str, value: str) -> None:
        """Set an annotation of a pod, which makes kubelet sync the pod's volumes."""
        body = {"metadata": {"uid": pod.meta.uid, "annotations": {annotation: value}}}
        path = resource_path(_CORE, pod.meta.namespace, "pods", pod.meta.name)
        await self._write("PATCH", path, body, _MERGE, _PATCHED)

    async def apply_status(self, plural: str, meta: Meta, status: Mapping[str, Any]) -> Body:
        """Apply the status of an object in TenantZone's API, and return the object as written."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KINDS[plural],
            # The uid ensures that the status is not written to a new object of the same name.
            "metadata": {"name": meta.name, "uid": meta.uid},
            "status": status,
        }
        return await self._write("PATCH", _object_path(plural, meta) + "/status", body, _APPLY, _APPLIED)

    async def set_finalizers(self, plural: str, meta: Meta, finalizers: Sequence[str]) -> Body:
        """Replace the finalizers of an object in TenantZone's API, and return the object as written.

        Raises:
            RestError: the request failed. Status 409 means that another client has changed the object since the read.
        """
        metadata = {"uid": meta.uid, "resourceVersion": str(meta.version), "finalizers": list(finalizers)}
        return await self._write("PATCH", _object_path(plural, meta), {"metadata": metadata}, _MERGE, _PATCHED)

    async def create_event(self, namespace: str, event: Body) -> None:
        """Create an Event of the API group ``events.k8s.io``."""
        await self._write("POST", resource_path(_EVENTS, namespace, "events"), event, "application/json", _PATCHED)

    async def patch_event(self, namespace: str, name: str, change: Body) -> None:
        await self._write("PATCH", resource_path(_EVENTS, namespace, "events", name), change, _MERGE, _PATCHED)

    async def _write(
        self, method: str, path: str, body: Body, content_type: str, params: Mapping[str, str]
    ) -> dict[str, Any]:
        self.writes += 1
        return await self.rest.call(method, path, body=body, content_type=content_type, params=params)

    def _watch(
        self,
        path: str,
        query: Mapping[str, str],
        version: int,
        seconds: int,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        params = {**query, "resourceVersion": str(version), "timeoutSeconds": str(seconds)}
        return self.rest.watch(path, params, seconds + _GRACE_SECONDS, headers)

    async def _list(
        self,
        path: str,
        query: Mapping[str, str],
        read: Callable[[Body], T],
        headers: Mapping[str, str] | None = None,
    ) -> tuple[list[T], int]:
        found: list[T] = []
        params = {**query, "limit": str(_PAGE)}
        while True:
            page = await self.rest.call("GET", path, params=params, headers=headers)
            # Convert each page immediately, because all objects as plain JSON would need many times the memory.
            found += map(read, page["items"])
            token = page["metadata"].get("continue")
            if not token:
                # All pages are from the same snapshot, so the last page's resource version applies to all of them.
                return found, int(page["metadata"]["resourceVersion"])
            params = {**query, "limit": str(_PAGE), "continue": token}


@asynccontextmanager
async def connected(
    connection: Connection, namespace: str | None, *, trace_configs: Sequence[aiohttp.TraceConfig] = ()
) -> AsyncIterator[Api]:
    """Context manager; its value is a client of the API server, whose sessions are closed when the block ends."""
    async with Rest(connection.for_kopf, trace_configs=trace_configs) as rest:
        yield Api(rest, namespace)


def is_gone(error: RestError) -> bool:
    """Returns whether a write failed because the object was deleted. A watch event will report the deletion."""
    return error.status == 404


def explain(error: Exception) -> str:
    """Returns a request's error as one line for the log. Adds advice if a certificate lacks key identifiers."""
    if isinstance(error, RestError) or not str(error):
        return str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientResponseError):
        # Leave out the URL, because a proxy's URL may contain a password.
        return f"{type(error).__name__}: {error.status} {error.message}"
    advice = ""
    if isinstance(error, aiohttp.ClientConnectorCertificateError) and "Key Identifier" in str(error):
        advice = (
            "; Python 3.13 and newer refuse certificates without key identifiers: renew the certificates of the API"
            " server and its CA with key identifiers, or start the operator with --allow-missing-key-identifiers"
        )
    return f"{type(error).__name__}: {error}{advice}"


def _object_path(plural: str, meta: Meta) -> str:
    return resource_path(API, meta.namespace or None, plural, meta.name)


def _owner(meta: Meta) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ZonePool",
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }

"""Lists, updates and watches KVStorages and KVCacheGroups at the API server."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

import aiohttp

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.cache_manager.declared import FINALIZER, Declared
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.names import FIELD_MANAGER, GROUP, VERSION
from tenantzone_operator.kube.rest import RestError

T = TypeVar("T", bound=Declared)
STORAGES: Final = "kvstorages"
GROUPS: Final = "kvcachegroups"
KINDS: Final = {STORAGES: "KVStorage", GROUPS: "KVCacheGroup"}
OUTDATED: Final = (404, 409)
"""HTTP statuses of a write to an object that has changed or was deleted since the listing; the next round retries."""
_OURS: Final = f"/apis/{GROUP}/{VERSION}"
_PAGE: Final = 500
_GRACE_SECONDS: Final = 5.0


class Objects:
    """The cluster's KVStorages and KVCacheGroups.

    Args:
        api: a client of the API server.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._versions: dict[str, str] = {}
        self._written: dict[str, set[str]] = {plural: set() for plural in KINDS}
        """Resource versions that this process has written since the last listing, by kind."""

    async def list_all(self, plural: str, read: Callable[[Body], T]) -> list[T]:
        """Returns all objects of a kind, each converted by ``read``.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: see `Rest.call`.
        """
        found: list[T] = []
        params = {"limit": str(_PAGE)}
        while True:
            page = await self._api.rest.call("GET", f"{_OURS}/{plural}", params=params)
            found += map(read, page["items"])
            token = page["metadata"].get("continue")
            if not token:
                self._versions[plural] = page["metadata"]["resourceVersion"]
                self._written[plural].clear()
                return found
            params = {"limit": str(_PAGE), "continue": token}

    async def await_change(self, seconds: float) -> bool:
        """Wait until another client changes an object; returns False if none does within ``seconds``."""
        watches = [asyncio.create_task(self._watch(plural, seconds)) for plural in KINDS]
        try:
            done, _ = await asyncio.wait(watches, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def hold(self, plural: str, declared: Declared) -> None:
        """Add the finalizer to an object, if the object is unchanged since the listing.

        Raises:
            RestError: the object has changed, or the finalizer is refused.
            aiohttp.ClientError, TimeoutError: see `Rest.call`.
        """
        await self._set_finalizers(plural, declared, dict.fromkeys([*declared.finalizers, FINALIZER]))

    async def let_go(self, plural: str, declared: Declared) -> None:
        """Remove the finalizer from a deleted object."""
        await self._set_finalizers(plural, declared, [each for each in declared.finalizers if each != FINALIZER])

    async def apply_status(self, plural: str, declared: Declared, status: Body) -> None:
        """Write an object's status."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KINDS[plural],
            "metadata": {"name": declared.meta.name, "uid": declared.meta.uid},
            "status": status,
        }
        path = f"{declared.meta.name}/status"
        applied = {"fieldManager": FIELD_MANAGER, "force": "true"}
        await self._write(plural, path, body, "application/apply-patch+yaml", applied)

    async def _set_finalizers(self, plural: str, declared: Declared, finalizers: Iterable[str]) -> None:
        # With the resource version, the write can't remove a finalizer that another client has added in the meantime.
        metadata = {
            "uid": declared.meta.uid,
            "resourceVersion": str(declared.meta.version),
            "finalizers": list(finalizers),
        }
        body, managed = {"metadata": metadata}, {"fieldManager": FIELD_MANAGER}
        await self._write(plural, declared.meta.name, body, "application/merge-patch+json", managed)

    async def _write(self, plural: str, path: str, body: Body, content_type: str, params: dict[str, str]) -> None:
        self._api.writes += 1
        written = await self._api.rest.call(
            "PATCH", f"{_OURS}/{plural}/{path}", body=body, content_type=content_type, params=params
        )
        if version := _version(written):
            self._written[plural].add(version)

    async def _watch(self, plural: str, seconds: float) -> None:
        """Return at the first event of this kind from another client; without one, sleep longer than ``seconds``."""
        params = {"resourceVersion": self._versions.get(plural, "0"), "timeoutSeconds": str(int(seconds) + 1)}
        with suppress(RestError, aiohttp.ClientError, TimeoutError):
            async for event in self._api.rest.watch(f"{_OURS}/{plural}", params, seconds + _GRACE_SECONDS):
                if _version(event.get("object", {})) not in self._written[plural]:
                    return
        await asyncio.sleep(2 * seconds)


def _version(body: Body) -> str:
    """Returns an object's resource version; empty if it has none, for example if it is an error."""
    return str(body.get("metadata", {}).get("resourceVersion", ""))

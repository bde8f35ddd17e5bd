"""Lists, updates and watches KVStorages and KVCacheGroups at the API server."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from tenantzone_contract.kube_names import GROUPS, STORAGES
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.cache_manager.declared import FINALIZER, Declared
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.rest import REQUEST_ERRORS

T = TypeVar("T", bound=Declared)
_CLUSTER_SCOPED: Final = (STORAGES, GROUPS)


class Objects:
    """Client for the cluster's KVStorages and KVCacheGroups.

    Args:
        api: a client of the API server.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._versions: dict[str, int] = {}
        """Resource version of the last listing, by plural name."""
        self._written: dict[str, set[str]] = {plural: set() for plural in _CLUSTER_SCOPED}
        """Resource versions that this process has written since the last listing, by plural name."""

    async def list_all(self, plural: str, read: Callable[[Body], T]) -> list[T]:
        """Returns all objects of a kind, each converted by ``read``.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: see `Rest.call`.
        """
        found, self._versions[plural] = await self._api.list_cluster(plural, read)
        self._written[plural].clear()
        return found

    async def await_change(self, seconds: float) -> bool:
        """Wait until another client changes an object; returns False if none does within ``seconds``."""
        watches = [asyncio.create_task(self._watch(plural, seconds)) for plural in _CLUSTER_SCOPED]
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
            RestError: the object has changed, or the API server refuses the finalizer.
            aiohttp.ClientError, TimeoutError: see `Rest.call`.
        """
        await self._set_finalizers(plural, declared, dict.fromkeys([*declared.finalizers, FINALIZER]))

    async def let_go(self, plural: str, declared: Declared) -> None:
        """Remove the finalizer from a deleted object."""
        await self._set_finalizers(plural, declared, [each for each in declared.finalizers if each != FINALIZER])

    async def apply_status(self, plural: str, declared: Declared, status: Body) -> None:
        """Write an object's status."""
        self._note(plural, await self._api.apply_status(plural, declared.meta, status))

    async def _set_finalizers(self, plural: str, declared: Declared, finalizers: Iterable[str]) -> None:
        self._note(plural, await self._api.set_finalizers(plural, declared.meta, list(finalizers)))

    def _note(self, plural: str, written: Body) -> None:
        if version := _version(written):
            self._written[plural].add(version)

    async def _watch(self, plural: str, seconds: float) -> None:
        """Return after the first change by another client.

        Without such a change, or after a failed watch, sleep longer than the caller's timeout of ``seconds``.
        """
        version = self._versions.get(plural, 0)
        with suppress(*REQUEST_ERRORS):
            async for event in self._api.watch_cluster(plural, version, int(seconds) + 1):
                if _version(event.get("object", {})) not in self._written[plural]:
                    return
        await asyncio.sleep(2 * seconds)


def _version(body: Body) -> str:
    """Returns an object's resource version; empty if the JSON has none, for example because it is an error."""
    return str(body.get("metadata", {}).get("resourceVersion", ""))

"""Lists KVStorages and KVCacheGroups for the console while a page is open.

All open pages share one listing. The store does not contain these objects, because only open pages and the leader
need them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tenantzone_contract.kube_names import GROUPS, STORAGES
from tenantzone_operator.cache_manager.declared import DeclaredGroup, DeclaredStorage, read_group, read_storage
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.rest import REQUEST_ERRORS

FRESH_SECONDS = 2.0
"""Minimum number of seconds between two listings."""
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Stored:
    """All KVStorages and KVCacheGroups, sorted by name."""

    storages: tuple[DeclaredStorage, ...] = ()
    groups: tuple[DeclaredGroup, ...] = ()


async def list_stored(api: Api) -> Stored:
    """Returns all KVStorages and KVCacheGroups from the API server.

    Raises:
        RestError, aiohttp.ClientError, TimeoutError: see `Rest.call`.
    """
    storages, _ = await api.list_cluster(STORAGES, read_storage)
    groups, _ = await api.list_cluster(GROUPS, read_group)
    return Stored(
        tuple(sorted(storages, key=lambda each: each.meta.name)), tuple(sorted(groups, key=lambda each: each.meta.name))
    )


class LiveStorages:
    """The last successful listing of KVStorages and KVCacheGroups, and the error of the newest listing.

    Args:
        list_all: lists the objects, and raises the same errors as :func:`list_stored`.
        now: returns monotonic seconds.
    """

    def __init__(self, list_all: Callable[[], Awaitable[Stored]], now: Callable[[], float] = time.monotonic) -> None:
        self._list_all = list_all
        self._now = now
        self._turn = asyncio.Lock()
        self._listed_at = float("-inf")
        self.stored = Stored()
        self.problem = ""
        """Why the newest listing failed; empty if it succeeded."""

    async def look(self) -> None:
        """List the objects again, unless the last listing is recent."""
        async with self._turn:
            if self._now() - self._listed_at < FRESH_SECONDS:
                return
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    self.stored = await self._list_all()
            except REQUEST_ERRORS as error:
                self.problem = explain(error)
            else:
                self.problem = ""
            self._listed_at = self._now()

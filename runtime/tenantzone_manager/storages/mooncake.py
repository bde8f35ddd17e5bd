"""A pool of memory over nodes, by Mooncake's store.

One object per part: ``PREFIX/objects/GROUP/INSTANCE/KEY-LOCATION.SPEC``. Mooncake gives its memory to whoever writes
first, and evicts by itself. What is written here is pinned, so that it stays until it is deleted; where no room is
left, a write fails.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import aiohttp

from tenantzone_contract.mooncake import MISSING, connect, pinned
from tenantzone_manager.core.records import LocationSpec
from tenantzone_manager.storages.backend import (
    DataStorageBackend,
    Place,
    StorageError,
    StoredObject,
    parsed_part,
    part_name,
)

_THREADS: Final = 4
_LISTED_AT_ONCE: Final = 1000
_LIST_SECONDS: Final = 300.0

_T = TypeVar("_T")


class MooncakeStorage(DataStorageBackend):
    """Calls block for as long as Mooncake does, on threads of its own, so that nobody else waits for them.

    Args:
        master: host and port of the pool's master.
        prefix: of all names in it.
        http: of the master's HTTP port, which lists what is there; empty: orphans are not looked for.
        owner: of the index; a prefix that belongs to another one is left alone.
        takeover: make it this index's, whoever had it: what that one wrote is removed as orphans.
    """

    def __init__(self, master: str, prefix: str, http: str, owner: str, takeover: bool) -> None:
        self._master = master
        self._prefix = prefix.strip("/")
        self._http = http.rstrip("/")
        self._owner = owner
        self._takeover = takeover
        self._threads = ThreadPoolExecutor(_THREADS, "mooncake")

    def uri(self, place: Place, spec: LocationSpec) -> str:
        return f"mooncake://{self._master}/{self._name(place, spec)}?size={spec.size}"

    async def create(self, places: Sequence[Place]) -> None:
        """Nothing has to be made first."""

    async def delete(self, places: Sequence[Place]) -> None:
        await self._remove([self._name(place, spec) for place in places for spec in place.location.specs])

    async def exist(self, places: Sequence[Place]) -> list[bool]:
        names = [[self._name(place, spec) for spec in place.location.specs] for place in places]
        sizes = await self._asked(lambda store: [[store.get_size(name) for name in each] for each in names])
        failed = next((size for each in sizes for size in each if size < 0 and size != MISSING), 0)
        if failed:
            raise StorageError(f"Mooncake does not say what exists (code {failed})")
        return [each == [spec.size for spec in place.location.specs] for place, each in zip(places, sizes, strict=True)]

    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        name = self._name(place, spec)
        found = await self._asked(lambda store: _content(store, name))
        if len(found) != spec.size:
            raise StorageError(f"{name} has {len(found)} bytes and not {spec.size}")
        return found

    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        name = self._name(place, spec)
        code = await self._asked(lambda store: store.put(name, content, pinned()))
        if code:
            raise StorageError(f"{name} can't be written (code {code})")

    async def check_health(self) -> None:
        await self._asked(self._claim)

    async def objects(self) -> AsyncIterator[list[StoredObject]]:
        if not self._http:
            return
        begin, found = f"{self._prefix}/objects/".lstrip("/"), list[StoredObject]()
        timeout = aiohttp.ClientTimeout(total=_LIST_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
                session.get(f"{self._http}/get_all_keys", raise_for_status=True) as answer,
            ):
                async for line in answer.content:
                    name = line.decode().removesuffix("\n")
                    each = _stored(name) if name.startswith(begin) else None
                    if each is not None:
                        found.append(each)
                    if len(found) == _LISTED_AT_ONCE:
                        yield found
                        found = []
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise StorageError(f"Mooncake's master does not list what is there: {error!r}") from error
        if found:
            yield found

    async def remove(self, objects: Sequence[StoredObject]) -> None:
        await self._remove([each.name for each in objects])

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _name(self, place: Place, spec: LocationSpec) -> str:
        return f"{self._prefix}/objects/{place.group}/{place.instance}/{part_name(place, spec)}".lstrip("/")

    async def _asked(self, ask: Callable[[Any], _T]) -> _T:
        """What a call of the client gives.

        Raises:
            StorageError: there is no client, or what ``ask`` raises.
        """

        def call() -> _T:
            try:
                store = connect(self._master)
            except OSError as error:
                raise StorageError(str(error)) from error
            return ask(store)

        try:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, call)
        except RuntimeError as error:
            raise StorageError(f"Mooncake's pool at {self._master} is used no more") from error
        return await asked

    async def _remove(self, names: Sequence[str]) -> None:
        # Readers have the manager's leases: Mooncake's own need not end first.
        codes = await self._asked(lambda store: store.batch_remove(list(names), True))
        for name, code in zip(names, codes, strict=True):
            if code not in (0, MISSING):
                raise StorageError(f"{name} was not deleted (code {code})")

    def _claim(self, store: Any) -> None:
        """See that the prefix is this index's, or make it so if it is nobody's: Mooncake forgets when it restarts."""
        name = f"{self._prefix}/owner".lstrip("/")
        if self._takeover:
            store.remove(name, True)
        size = store.get_size(name)
        if size < 0 and size != MISSING:
            raise StorageError(f"Mooncake at {self._master} does not answer (code {size})")
        if size == MISSING:
            # It is no error for Mooncake to write what is there, so what was written is looked at.
            code = store.put(name, self._owner.encode(), pinned())
            if code:
                raise StorageError(f"Mooncake at {self._master} can't be written (code {code})")
            self._takeover = False
        found = _content(store, name).decode()
        if found != self._owner:
            raise StorageError(
                f"{self._master}/{self._prefix} belongs to the index {found}, and this is {self._owner}; register the "
                "storage with the option takeover to have what that one wrote removed"
            )


def _content(store: Any, name: str) -> bytes:
    handle = store.get_buffer(name)
    if handle is None:
        raise StorageError(f"{name} can't be read (code {store.get_size(name)})")
    return bytes(memoryview(handle))


def _stored(name: str) -> StoredObject | None:
    parts = name.split("/")
    parsed = parsed_part(parts[-1])
    if parsed is None or len(parts) < 3:
        return None
    # Mooncake does not tell when it was written. Who writes has a record, and no name is ever used twice.
    return StoredObject(parts[-3], parts[-2], *parsed, name, 0.0)

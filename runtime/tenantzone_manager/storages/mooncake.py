"""Storage in a memory pool across nodes, provided by Mooncake's store.

There is one object per part: ``PREFIX/objects/GROUP/INSTANCE/KEY-LOCATION.SPEC``. Mooncake allocates memory first come,
first served, and may evict any unpinned object. Objects of this storage are pinned, so they stay until the manager
deletes them, and a write fails if the pool has no room.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiohttp

from tenantzone_contract.cache.mooncake import MISSING, pinned, using
from tenantzone_contract.text import printable
from tenantzone_manager.core.records import LocationSpec
from tenantzone_manager.storages.backend import (
    MAX_OWNER_BYTES,
    Claim,
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
    """Calls Mooncake's blocking client in threads, so that the client does not block the event loop.

    Args:
        master: host and port of the pool's master.
        prefix: prefix of the names of all objects in the pool.
        http: URL of the master's HTTP port, which lists objects. If empty, orphans are not found.
        claim: claim to the prefix.
    """

    def __init__(self, master: str, prefix: str, http: str, claim: Claim) -> None:
        super().__init__(claim)
        self._master = master
        self._prefix = prefix.strip("/")
        self._http = http.rstrip("/")
        self._threads = ThreadPoolExecutor(_THREADS, "mooncake")

    def uri(self, place: Place, spec: LocationSpec) -> str:
        return f"mooncake://{self._master}/{quote(self._name(place, spec))}?size={spec.size}"

    async def create(self, places: Sequence[Place]) -> None:
        """Does nothing, because Mooncake needs no preparation."""

    async def delete(self, places: Sequence[Place]) -> None:
        await self._remove([self._name(place, spec) for place in places for spec in place.location.specs])

    async def exist(self, places: Sequence[Place]) -> list[bool]:
        def look(store: Any) -> list[bool]:
            return [
                all(_size(store, self._name(place, spec)) == spec.size for spec in place.location.specs)
                for place in places
            ]

        return await self._asked(look)

    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        name = self._name(place, spec)
        found = await self._asked(lambda store: _content(store, name), spec.size)
        if len(found) != spec.size:
            raise StorageError(f"{name} has {len(found)} bytes, not {spec.size}")
        return found

    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        name = self._name(place, spec)
        code = await self._asked(lambda store: store.put(name, content, pinned()), len(content))
        if code:
            raise StorageError(f"{name} can't be written (code {code})")

    async def check_health(self) -> None:
        await self._asked(self._claim)

    async def objects(self) -> AsyncIterator[list[StoredObject]]:
        if not self._http:
            return
        begin, found = f"{self._prefix}/objects/".lstrip("/").encode(), list[StoredObject]()
        timeout = aiohttp.ClientTimeout(total=_LIST_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
                session.get(f"{self._http}/get_all_keys", raise_for_status=True) as answer,
            ):
                async for name in _lines(answer.content):
                    each = _stored(name, begin)
                    if each is not None:
                        found.append(each)
                    if len(found) == _LISTED_AT_ONCE:
                        yield found
                        found = []
        except (aiohttp.ClientError, TimeoutError) as error:
            raise StorageError(f"Mooncake's master failed to list objects over HTTP: {error!r}") from error
        if found:
            yield found

    async def remove(self, objects: Sequence[StoredObject]) -> None:
        await self._remove([each.name for each in objects])

    async def close(self) -> None:
        # Queued calls are completed, because cancelling their futures would look like a cancellation of the caller.
        self._threads.shutdown(wait=False)

    def _name(self, place: Place, spec: LocationSpec) -> str:
        return f"{self._prefix}/objects/{place.group}/{place.instance}/{part_name(place, spec)}".lstrip("/")

    async def _asked(self, ask: Callable[[Any], _T], size: int = 0) -> _T:
        """Call ``ask`` with Mooncake's client in a thread, and return its result. The call transfers ``size`` bytes.

        Raises:
            StorageError: the client is not available, ``ask`` failed, or the storage is closed.
        """

        def call() -> _T:
            try:
                with using(self._master, size) as store:
                    return ask(store)
            except OSError as error:
                raise StorageError(str(error)) from error

        try:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, call)
        except RuntimeError as error:
            raise StorageError(f"the connection to Mooncake at {self._master} is closed") from error
        return await asked

    async def _remove(self, names: Sequence[str]) -> None:
        # Force the removal instead of waiting for Mooncake's leases, because the manager has leases of its own.
        codes = await self._asked(lambda store: store.batch_remove(list(names), True))
        for name, code in zip(names, codes, strict=True):
            if code not in (0, MISSING):
                raise StorageError(f"{name} was not deleted (code {code})")

    def _claim(self, store: Any) -> None:
        """Check that this storage owns the prefix, or claim the prefix if it is free.

        A restart of Mooncake deletes the owner's name, because all objects are in memory.
        """
        name, place = f"{self._prefix}/owner".lstrip("/"), f"{self._master}/{self._prefix}"
        if self.claim.has_to_write(_text(store, name), place):
            store.remove(name, True)
            # Mooncake reports no error if the object exists already, so the content is read back.
            code = store.put(name, self.claim.text.encode(), pinned())
            if code:
                raise StorageError(f"can't write to Mooncake at {self._master} (code {code})")
            if (found := _text(store, name)) != self.claim.text:
                raise StorageError(
                    f"the index {printable(found)} claimed {place} at the same time; the claim is retried"
                )
        self.claim.is_made()


def _size(store: Any, name: str) -> int | None:
    """Returns the size of an object in bytes, or None if the object does not exist."""
    size = int(store.get_size(name))
    if size < 0 and size != MISSING:
        raise StorageError(f"Mooncake did not report whether {name} exists (code {size})")
    return None if size == MISSING else size


def _text(store: Any, name: str) -> str:
    """Returns a short object as text, replacing invalid bytes, or an empty string if the object does not exist."""
    size = _size(store, name)
    if size is not None and size > MAX_OWNER_BYTES:
        raise StorageError(f"{name} has {size} bytes, so it does not contain the name of an owner; remove this object")
    return "" if size is None else _content(store, name).decode(errors="replace")


def _content(store: Any, name: str) -> bytes:
    handle = store.get_buffer(name)
    if handle is None:
        size = _size(store, name)
        raise StorageError(f"{name} does not exist" if size is None else f"{name} with {size} bytes can't be read")
    return bytes(memoryview(handle))


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Generates the lines of a stream. Lines may have any length, because other users of the pool choose the names."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    yield rest


def _stored(listed: bytes, begin: bytes) -> StoredObject | None:
    """Returns the object with a listed name, or None if the object does not belong to this storage.

    Objects of other users of the pool may have names that also begin with the prefix of this storage.
    """
    parts = listed.removeprefix(begin).split(b"/")
    if not listed.startswith(begin) or len(parts) != 3:
        return None
    try:
        name, (group, instance, part) = listed.decode(), (each.decode() for each in parts)
    except UnicodeDecodeError:
        return None
    parsed = parsed_part(part)
    # Mooncake does not report when an object was written. With time 0, any object without a record is removed. This
    # is safe, because a writer learns the name of an object only after the record exists, and no name is used twice.
    return None if parsed is None else StoredObject(group, instance, *parsed, name, 0.0)

"""A pool of memory over nodes, by Mooncake's store.

One object per part: ``PREFIX/objects/GROUP/INSTANCE/KEY-LOCATION.SPEC``. Mooncake gives its memory to whoever writes
first, and evicts by itself. What is written here is pinned, so that it stays until it is deleted; where no room is
left, a write fails.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiohttp

from tenantzone_contract.mooncake import MISSING, pinned, using
from tenantzone_manager.core.records import LocationSpec
from tenantzone_manager.storages.backend import (
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
    """Calls block for as long as Mooncake does, on threads of its own, so that nobody else waits for them.

    Args:
        master: host and port of the pool's master.
        prefix: of all names in it.
        http: of the master's HTTP port, which lists what is there; empty: orphans are not looked for.
        claim: to the prefix.
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
        """Nothing has to be made first."""

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
            raise StorageError(f"{name} has {len(found)} bytes and not {spec.size}")
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
            raise StorageError(f"Mooncake's master does not list what is there: {error!r}") from error
        if found:
            yield found

    async def remove(self, objects: Sequence[StoredObject]) -> None:
        await self._remove([each.name for each in objects])

    async def close(self) -> None:
        # What was asked before is done: who waits for it would take it for cancelled by others.
        self._threads.shutdown(wait=False)

    def _name(self, place: Place, spec: LocationSpec) -> str:
        return f"{self._prefix}/objects/{place.group}/{place.instance}/{part_name(place, spec)}".lstrip("/")

    async def _asked(self, ask: Callable[[Any], _T], size: int = 0) -> _T:
        """What a call of the client gives that moves so many bytes.

        Raises:
            StorageError: there is no client, or what ``ask`` raises.
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
            raise StorageError(f"Mooncake's pool at {self._master} is used no more") from error
        return await asked

    async def _remove(self, names: Sequence[str]) -> None:
        # Readers have the manager's leases: Mooncake's own need not end first.
        codes = await self._asked(lambda store: store.batch_remove(list(names), True))
        for name, code in zip(names, codes, strict=True):
            if code not in (0, MISSING):
                raise StorageError(f"{name} was not deleted (code {code})")

    def _claim(self, store: Any) -> None:
        """See that the prefix is this storage's, or make it so if it is free: Mooncake forgets when it restarts."""
        name, place = f"{self._prefix}/owner".lstrip("/"), f"{self._master}/{self._prefix}"
        if self.claim.has_to_write(_text(store, name), place):
            store.remove(name, True)
            # It is no error for Mooncake to write what is there, so what was written is looked at.
            code = store.put(name, self.claim.text.encode(), pinned())
            if code:
                raise StorageError(f"Mooncake at {self._master} can't be written (code {code})")
            if (found := _text(store, name)) != self.claim.text:
                raise StorageError(f"{place} belongs to the index {found}, which was quicker; it is tried again")
        self.claim.is_made()


def _size(store: Any, name: str) -> int | None:
    """An object's bytes; None: there is none."""
    size = int(store.get_size(name))
    if size < 0 and size != MISSING:
        raise StorageError(f"Mooncake does not say whether {name} exists (code {size})")
    return None if size == MISSING else size


def _text(store: Any, name: str) -> str:
    """An object as a text, whatever anybody has written there; empty: there is none."""
    return "" if _size(store, name) is None else _content(store, name).decode(errors="replace")


def _content(store: Any, name: str) -> bytes:
    handle = store.get_buffer(name)
    if handle is None:
        size = _size(store, name)
        raise StorageError(f"{name} is not there" if size is None else f"none of {name}'s {size} bytes can be read")
    return bytes(memoryview(handle))


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: whoever uses the pool may have given an object any name."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    yield rest


def _stored(listed: bytes, begin: bytes) -> StoredObject | None:
    """What an object's name says; None: it is another's, whose prefix may begin like this storage's."""
    parts = listed.removeprefix(begin).split(b"/")
    if not listed.startswith(begin) or len(parts) != 3:
        return None
    try:
        name, (group, instance, part) = listed.decode(), (each.decode() for each in parts)
    except UnicodeDecodeError:
        return None
    parsed = parsed_part(part)
    # Mooncake does not tell when it was written. Who writes has a record, and no name is ever used twice.
    return None if parsed is None else StoredObject(group, instance, *parsed, name, 0.0)

"""Manages all storages, and checks periodically whether each storage is available."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tenantzone_manager.core.records import LocationSpec
from tenantzone_manager.core.settings import Storage
from tenantzone_manager.storages.backend import DataStorageBackend, Place, PlaceTaken, StorageError
from tenantzone_manager.storages.types import make

PROBE_SECONDS: Final = 5.0
PROBE_TIMEOUT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
"""Time limit in seconds for operations other than reading and writing bytes."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StorageState:
    """A storage and the result of its last check."""

    storage: Storage
    backend: DataStorageBackend
    problem: str = "not checked yet"
    """Reason why the storage can't be used; empty if the storage can be used."""
    since: float = 0.0
    """Unix time at which the storage last became usable or unusable."""
    place_owner: str = ""
    """Name of another storage that owns the place of this storage; empty if there is no conflict."""


class DataStorageManager:
    """Gives access to the storages, and probes each of them periodically.

    Args:
        owner: name of the index to which the storages belong.
        clock: returns Unix time.
        make_backend: creates the backend of a storage.
        is_registered: returns whether the index has a storage with this name. If None, only storages passed to
            :meth:`keep` count as registered.
    """

    def __init__(
        self,
        owner: str,
        clock: Callable[[], float] = time.time,
        make_backend: Callable[[Storage, str], DataStorageBackend] = make,
        is_registered: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self.version = 0
        """Counter that changes whenever a storage becomes available or unavailable."""
        self.owner = owner
        """Name of the index to which the storages belong."""
        self._clock = clock
        self._make = make_backend
        self._is_registered = is_registered
        self._states: dict[str, StorageState] = {}

    def check(self, storage: Storage) -> None:
        """Refuse a storage with invalid options.

        Raises:
            ValueError: an option is invalid; the message names the option.
        """
        self._make(storage, self.owner)

    async def keep(self, storages: Iterable[Storage]) -> None:
        """Open, change and close storages so that exactly these storages with these settings are open."""
        wanted = {storage.name: storage for storage in storages}
        for name in self._states.keys() - wanted.keys():
            await self._states.pop(name).backend.close()
            self.version += 1
        for name, storage in wanted.items():
            known = self._states.get(name)
            if known is not None and known.storage.options == storage.options:
                if known.storage != storage:
                    known.storage = storage
                    self.version += 1
                continue
            if known is not None:
                await known.backend.close()
            backend = self._make(storage, self.owner)
            self._states[name] = StorageState(storage, backend, since=self._clock())
            await self.probe(name)

    async def belong_to(self, owner: str) -> None:
        """Set the name of the index to which the storages belong. If the name changes, all storages are closed."""
        if owner != self.owner:
            await self.close()
            self.owner = owner

    def get_available_storage(self, names: Sequence[str]) -> list[Storage]:
        """Returns the named storages that are enabled and were healthy at the last check, in the given order."""
        return [self._states[name].storage for name in names if self.is_available(name)]

    def is_available(self, name: str) -> bool:
        """Returns whether a storage exists, is enabled and healthy."""
        state = self._states.get(name)
        return state is not None and state.storage.enabled and not state.problem

    def backend(self, name: str) -> DataStorageBackend | None:
        """Returns the backend of a storage, or None if there is no such storage."""
        state = self._states.get(name)
        return state.backend if state else None

    def states(self) -> list[StorageState]:
        """Returns the states of all storages."""
        return list(self._states.values())

    async def create(self, name: str, places: Sequence[Place]) -> None:
        """Prepare places for writing.

        Raises:
            StorageError: the storage failed. The storage counts as unhealthy until the next successful check.
        """
        try:
            async with _in_time(ANSWER_SECONDS):
                await self._of(name).create(places)
        except StorageError as error:
            self._found(name, str(error))
            raise

    async def delete(self, name: str, places: Sequence[Place]) -> None:
        """Delete all parts at these places.

        Raises:
            StorageError: the storage failed; some parts may still exist.
        """
        async with _in_time(ANSWER_SECONDS):
            await self._of(name).delete(places)

    async def exist(self, name: str, places: Sequence[Place]) -> list[bool]:
        """Returns, for each place, whether all its parts exist.

        Raises:
            StorageError: the storage does not answer.
        """
        async with _in_time(ANSWER_SECONDS):
            return await self._of(name).exist(places)

    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        """Returns the bytes of a part from the storage of the place.

        Raises:
            StorageError: the part can't be read, or has a different size.
        """
        return await self._of(place.location.storage).read(place, spec)

    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        """Write a part to the storage of the place.

        Raises:
            StorageError: the write failed; some of the bytes may have been written.
        """
        await self._of(place.location.storage).write(place, spec, content)

    async def probe(self, name: str) -> None:
        """Check a storage, and record the result."""
        try:
            async with _in_time(PROBE_TIMEOUT_SECONDS):
                await self._check(name)
        except StorageError as error:
            self._found(name, str(error))
        except Exception as error:
            # Catch all exceptions, because none may stop the checks of other storages or the start of the manager.
            self._found(name, repr(error))
        else:
            self._found(name, "")

    async def _check(self, name: str) -> None:
        """Check a storage. The storage may claim its place from another storage that is no longer registered."""
        state, backend, owner = self._states.get(name), self._of(name), ""
        try:
            await backend.check_health()
        except PlaceTaken as taken:
            if await self._owns_places(taken.owner):
                owner = taken.owner
                raise
            backend.claim.unregistered = taken.owner
            await backend.check_health()
        finally:
            # Reset the name, because the other storage may be registered again before the next check.
            backend.claim.unregistered = ""
            if state is not None:
                state.place_owner = owner

    async def _owns_places(self, name: str) -> bool:
        return name in self._states or (self._is_registered is not None and await self._is_registered(name))

    def sharing_place(self, name: str) -> list[str]:
        """Returns the names of the other storages that have the same place as this storage."""
        owner_of = {each.storage.name: each.place_owner or each.storage.name for each in self._states.values()}
        place = owner_of.get(name, name)
        return sorted(other for other, owner in owner_of.items() if owner == place and other != name)

    async def probe_always(self) -> None:
        """Check all storages periodically and concurrently, until cancelled."""
        while True:
            await asyncio.gather(*(self.probe(name) for name in list(self._states)))
            await asyncio.sleep(PROBE_SECONDS)

    async def close(self) -> None:
        """Close all storages."""
        await self.keep(())

    def _of(self, name: str) -> DataStorageBackend:
        state = self._states.get(name)
        if state is None:
            raise StorageError(f"there is no storage {name}")
        return state.backend

    def _found(self, name: str, problem: str) -> None:
        state = self._states.get(name)
        if state is None or state.problem == problem:
            return
        if bool(state.problem) != bool(problem):
            self.version += 1
            state.since = self._clock()
            _log.log(
                logging.WARNING if problem else logging.INFO, "storage %s: %s", name, problem or "can be used again"
            )
        state.problem = problem


@asynccontextmanager
async def _in_time(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise StorageError(f"the storage did not answer within {seconds:g} s") from None

"""All storages of the manager: which there are, and which of them can be used now."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tenantzone_manager.core.records import LocationSpec
from tenantzone_manager.core.settings import Storage
from tenantzone_manager.storages.backend import DataStorageBackend, Place, StorageError
from tenantzone_manager.storages.types import make

PROBE_SECONDS: Final = 5.0
PROBE_TIMEOUT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
"""After which a storage that was asked for anything else than bytes counts as one that does not do it."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Standing:
    """A storage, and what was last found of it."""

    storage: Storage
    backend: DataStorageBackend
    problem: str = "not tried yet"
    """Why it can't be used; empty: it can."""
    since: float = 0.0
    """Unix time at which that began."""


class DataStorageManager:
    """Tries each storage now and then, beside all that is asked of it.

    Args:
        owner: of the index, which storages belong to.
        clock: Unix time.
        make_backend: the backend of a storage.
    """

    def __init__(
        self,
        owner: str,
        clock: Callable[[], float] = time.time,
        make_backend: Callable[[Storage, str], DataStorageBackend] = make,
    ) -> None:
        self.version = 0
        """Changes whenever another storage can be used, or one can be used no more."""
        self._owner = owner
        self._clock = clock
        self._make = make_backend
        self._standings: dict[str, Standing] = {}

    def check(self, storage: Storage) -> None:
        """Refuse what no backend can be made of.

        Raises:
            ValueError: says why.
        """
        self._make(storage, self._owner)

    async def keep(self, storages: Iterable[Storage]) -> None:
        """Have these storages and no others, as they are described."""
        wanted = {storage.name: storage for storage in storages}
        for name in self._standings.keys() - wanted.keys():
            await self._standings.pop(name).backend.close()
            self.version += 1
        for name, storage in wanted.items():
            known = self._standings.get(name)
            if known is not None and known.storage.options == storage.options:
                if known.storage != storage:
                    known.storage = storage
                    self.version += 1
                continue
            if known is not None:
                await known.backend.close()
            backend = self._make(storage, self._owner)
            self._standings[name] = Standing(storage, backend, since=self._clock())
            await self.probe(name)

    def get_available_storage(self, names: Sequence[str]) -> list[Storage]:
        """Those of the storages that can be used now, in the given order: enabled, and healthy when last tried."""
        return [self._standings[name].storage for name in names if self.is_available(name)]

    def is_available(self, name: str) -> bool:
        """Whether a storage is there, enabled and healthy."""
        standing = self._standings.get(name)
        return standing is not None and standing.storage.enabled and not standing.problem

    def backend(self, name: str) -> DataStorageBackend | None:
        """The backend of a storage; None: there is none."""
        standing = self._standings.get(name)
        return standing.backend if standing else None

    def standings(self) -> list[Standing]:
        """All of them."""
        return list(self._standings.values())

    async def create(self, name: str, places: Sequence[Place]) -> None:
        """Have it possible to write there.

        Raises:
            StorageError: it is not; the storage counts as unhealthy until it was tried again.
        """
        try:
            async with _in_time(ANSWER_SECONDS):
                await self._of(name).create(places)
        except StorageError as error:
            self._found(name, str(error))
            raise

    async def delete(self, name: str, places: Sequence[Place]) -> None:
        """Have what lies there go.

        Raises:
            StorageError: it may still be there.
        """
        async with _in_time(ANSWER_SECONDS):
            await self._of(name).delete(places)

    async def exist(self, name: str, places: Sequence[Place]) -> list[bool]:
        """Whether all parts of each are there.

        Raises:
            StorageError: it can't be told.
        """
        async with _in_time(ANSWER_SECONDS):
            return await self._of(name).exist(places)

    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        """A part's bytes, from the storage of the place.

        Raises:
            StorageError: it can't be read, or is not as long as it must be.
        """
        return await self._of(place.location.storage).read(place, spec)

    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        """Write a part to the storage of the place.

        Raises:
            StorageError: some of it may be there.
        """
        await self._of(place.location.storage).write(place, spec, content)

    async def probe(self, name: str) -> None:
        """Try a storage, and note what was found."""
        try:
            async with _in_time(PROBE_TIMEOUT_SECONDS):
                await self._of(name).check_health()
        except StorageError as error:
            self._found(name, str(error))
        except Exception as error:
            # What a backend has not foreseen must not end that the others are tried, or that a manager starts.
            self._found(name, repr(error))
        else:
            self._found(name, "")

    async def probe_always(self) -> None:
        """Try all of them, each in its own time, until cancelled."""
        while True:
            await asyncio.gather(*(self.probe(name) for name in list(self._standings)))
            await asyncio.sleep(PROBE_SECONDS)

    async def close(self) -> None:
        """Let go of all of them."""
        await self.keep(())

    def _of(self, name: str) -> DataStorageBackend:
        standing = self._standings.get(name)
        if standing is None:
            raise StorageError(f"there is no storage {name}")
        return standing.backend

    def _found(self, name: str, problem: str) -> None:
        standing = self._standings.get(name)
        if standing is None or standing.problem == problem:
            return
        if bool(standing.problem) != bool(problem):
            self.version += 1
            standing.since = self._clock()
            _log.log(logging.WARNING if problem else logging.INFO, "storage %s: %s", name, problem or "can be used")
        standing.problem = problem


@asynccontextmanager
async def _in_time(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise StorageError(f"did not answer within {seconds:g} s") from None

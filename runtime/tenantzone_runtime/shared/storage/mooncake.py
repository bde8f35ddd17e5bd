"""Objects in a memory pool of several nodes, using Mooncake's client, on threads that may block."""

import os

from tenantzone_contract.cache.mooncake import MISSING, pinned, using
from tenantzone_runtime.shared.storage.places import PoolPlace


class MooncakeStorages:
    """The pool of this engine's ``MOONCAKE_MASTER``. The manager can't redirect the engine to another pool."""

    def write(self, place: PoolPlace, content: bytearray) -> None:
        """Write an object. Later reads return the whole object.

        Raises:
            OSError: the object could not be written, for instance if there is no room.
        """
        with using(_master_of(place), len(content)) as store:
            code = store.put(place.name, content, pinned())
        if code:
            raise OSError(f"Mooncake could not write {place.name} (code {code})")

    def read(self, place: PoolPlace, content: bytearray) -> bool:
        """Read an object. Returns False if its length differs from the length of ``content``.

        Raises:
            OSError: the object could not be read; ``FileNotFoundError`` if it is missing.
        """
        with using(_master_of(place), len(content)) as store:
            handle = store.get_buffer(place.name)
            if handle is None:
                code = store.get_size(place.name)
                missing = FileNotFoundError if code == MISSING else OSError
                # Mooncake does not report why a known object is unavailable. Its node may be gone.
                why = f"code {code}" if code < 0 else f"it knows of {code} bytes"
                raise missing(f"Mooncake could not read {place.name} ({why})")
            found = memoryview(handle)
            is_whole = found.nbytes == len(content)
            if is_whole:
                content[:] = found
            # Free the client's buffer before the next read needs it.
            del found, handle
            return is_whole


def _master_of(place: PoolPlace) -> str:
    known = os.environ.get("MOONCAKE_MASTER", "")
    if place.master != known:
        given = f"MOONCAKE_MASTER is {known}" if known else "MOONCAKE_MASTER is not set"
        raise OSError(f"the storage uses the Mooncake master {place.master}, but for this engine {given}")
    return known

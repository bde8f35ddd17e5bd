"""Objects in a memory pool of several nodes, through Mooncake's own client, on threads that may block."""

import os

from tenantzone_contract.mooncake import MISSING, pinned, using
from tenantzone_runtime.shared.places import PoolPlace


class MooncakeStorages:
    """The pool named in this engine's ``MOONCAKE_MASTER``: the manager names a pool, but can't redirect to another."""

    def write(self, place: PoolPlace, content: bytearray) -> None:
        """Write an object; later reads return all of it.

        Raises:
            OSError: the object could not be written, for instance if there is no room.
        """
        with using(_master_of(place), len(content)) as store:
            code = store.put(place.name, content, pinned())
        if code:
            raise OSError(f"Mooncake does not take {place.name} (code {code})")

    def read(self, place: PoolPlace, content: bytearray) -> bool:
        """Read an object. Returns False if it has another length than ``content``.

        Raises:
            OSError: the object could not be read; ``FileNotFoundError`` if it is missing.
        """
        with using(_master_of(place), len(content)) as store:
            handle = store.get_buffer(place.name)
            if handle is None:
                code = store.get_size(place.name)
                missing = FileNotFoundError if code == MISSING else OSError
                # Mooncake does not report why a known object is unavailable: its node may be gone.
                why = f"code {code}" if code < 0 else f"it knows of {code} bytes"
                raise missing(f"Mooncake does not give {place.name} ({why})")
            found = memoryview(handle)
            is_whole = found.nbytes == len(content)
            if is_whole:
                content[:] = found
            # Frees the client's buffer before the next read needs it.
            del found, handle
            return is_whole


def _master_of(place: PoolPlace) -> str:
    known = os.environ.get("MOONCAKE_MASTER", "")
    if place.master != known:
        given = f"MOONCAKE_MASTER is {known}" if known else "MOONCAKE_MASTER is not set"
        raise OSError(f"the storage's pool has its master at {place.master}, and for this engine {given}")
    return known

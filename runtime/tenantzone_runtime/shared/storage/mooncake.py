"""Reads and writes objects in a Mooncake memory pool, which spans several nodes. All methods may block."""

import os

from tenantzone_contract.cache.mooncake import MISSING, pinned, using
from tenantzone_runtime.shared.storage.places import PoolPlace


class MooncakeStorages:
    """The pool whose master the environment variable ``MOONCAKE_MASTER`` names. All other pools are refused."""

    def write(self, place: PoolPlace, content: bytearray) -> None:
        """Write an object. Later reads return the whole object.

        Raises:
            OSError: the object could not be written, for example because the pool has no room.
        """
        with using(_master_of(place), len(content)) as store:
            code = store.put(place.name, content, pinned())
        if code:
            raise OSError(f"Mooncake could not write {place.name} (code {code})")

    def read(self, place: PoolPlace, content: bytearray) -> bool:
        """Read an object into ``content``. Returns False if the object's length differs from that of ``content``.

        Raises:
            FileNotFoundError: the object does not exist.
            OSError: the object could not be read.
        """
        with using(_master_of(place), len(content)) as store:
            handle = store.get_buffer(place.name)
            if handle is None:
                code = store.get_size(place.name)
                missing = FileNotFoundError if code == MISSING else OSError
                # Mooncake does not report why an existing object is unavailable. Its node may be down.
                why = f"code {code}" if code < 0 else f"the object has {code} bytes"
                raise missing(f"Mooncake could not read {place.name} ({why})")
            found = memoryview(handle)
            is_whole = found.nbytes == len(content)
            if is_whole:
                content[:] = found
            # Free the client's buffer, because the next read needs it.
            del found, handle
            return is_whole


def _master_of(place: PoolPlace) -> str:
    known = os.environ.get("MOONCAKE_MASTER", "")
    if place.master != known:
        given = f"MOONCAKE_MASTER is {known}" if known else "MOONCAKE_MASTER is not set"
        raise OSError(
            f"the storage uses the Mooncake master {place.master}, but this engine's {given}; set the "
            "variable to the storage's master"
        )
    return known

"""Sealing for storages that other parties can write to: the disk tier's seal with another key, bound to a location.

An object consists of a nonce and the sealed chunk. The seal covers the id of the location for which the object was
written, so the object does not open at any other location, except for copies made by the manager.
"""

import threading

from tenantzone_contract.cache.cache_names import written_as
from tenantzone_contract.zone_config.instance import Instance
from tenantzone_runtime.disk.files.sealing import NONCE_BYTES, Seal, ZoneSeal, new_nonce


def zone_seal(salt_key: bytes, instance: Instance, purge: str) -> ZoneSeal:
    """Returns the seal of a zone's chunks in shared storages, until its next purge; see :class:`ZoneSeal`."""
    return ZoneSeal(salt_key, instance, purge, b"tenantzone shared tier")


def object_size(seal: Seal, content_bytes: int) -> int:
    """Returns the size of an object with ``content_bytes`` bytes of content."""
    return NONCE_BYTES + seal.sealed_size(content_bytes)


def seal_object(seal: Seal, content: memoryview, key: bytes, location: str, sealed: bytearray) -> None:
    """Seal a chunk for a location, given by its id, into ``sealed``."""
    nonce = new_nonce()
    sealed[:NONCE_BYTES] = nonce
    seal.seal(content, _about(key, location), nonce, memoryview(sealed)[NONCE_BYTES:])


def open_object(seal: Seal, sealed: bytearray, key: bytes, location: str, content: memoryview) -> None:
    """Open an object into ``content``.

    Raises:
        CorruptObjectError: the object was not sealed for this chunk at this location. ``content`` is set to zeros.
    """
    seal.open(memoryview(sealed)[NONCE_BYTES:], _about(key, location), bytes(sealed[:NONCE_BYTES]), content)


class Buffers:
    """A buffer for one object for each thread, because allocation for each object would take more time than filling it.

    Args:
        size: size of an object in bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._of_thread = threading.local()

    def of_this_thread(self) -> bytearray:
        """Returns the calling thread's buffer."""
        buffer = getattr(self._of_thread, "buffer", None)
        if not isinstance(buffer, bytearray):
            buffer = self._of_thread.buffer = bytearray(self.size)
        return buffer


def _about(key: bytes, location: str) -> bytes:
    return key + b"/" + written_as(location).encode()

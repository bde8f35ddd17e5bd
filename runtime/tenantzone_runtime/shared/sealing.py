"""Sealing for shared storages, to which other parties can write.

Chunks are sealed as in the disk tier, but with another key, and bound to a location. An object consists of a nonce and
the sealed chunk. The seal covers the id of the location for which the object was written. So the object can't be opened
at another location, except for copies that the manager makes.
"""

from tenantzone_contract.cache.cache_names import written_as
from tenantzone_contract.zone_config.instance import Instance
from tenantzone_runtime.disk.files.sealing import NONCE_BYTES, Seal, ZoneSeal, new_nonce


def zone_seal(salt_key: bytes, instance: Instance, purge: str) -> ZoneSeal:
    """Returns the seal of a zone's chunks in shared storages, until the zone's next purge; see :class:`ZoneSeal`."""
    return ZoneSeal(salt_key, instance, purge, b"tenantzone shared tier")


def object_size(seal: Seal, content_bytes: int) -> int:
    """Returns the size in bytes of an object whose chunk has ``content_bytes`` bytes."""
    return NONCE_BYTES + seal.sealed_size(content_bytes)


def seal_object(seal: Seal, content: memoryview, key: bytes, location: str, sealed: bytearray) -> None:
    """Seal a chunk into ``sealed``, for the location with the id ``location``."""
    nonce = new_nonce()
    sealed[:NONCE_BYTES] = nonce
    seal.seal(content, _about(key, location), nonce, memoryview(sealed)[NONCE_BYTES:])


def open_object(seal: Seal, sealed: bytearray, key: bytes, location: str, content: memoryview) -> None:
    """Decrypt an object into ``content``.

    Raises:
        CorruptObjectError: the object was not sealed for this chunk at this location. ``content`` is set to zeros.
    """
    seal.open(memoryview(sealed)[NONCE_BYTES:], _about(key, location), bytes(sealed[:NONCE_BYTES]), content)


def _about(key: bytes, location: str) -> bytes:
    return key + b"/" + written_as(location).encode()

"""Checksums of records and their addresses, to detect records that a faulty disk or a person has changed."""

import zlib
from typing import Final

from tenantzone_manager.index.backend import Address

_MARK: Final = b"\xc1"
"""First byte of a stored record. Neither MessagePack nor JSON begins with this byte."""
_HEAD: Final = 5
"""Number of bytes of the mark and the checksum together."""


class CorruptRecord(Exception):
    """The stored record differs from the record that was written at this address."""


def with_checksum(address: Address, content: bytes) -> bytes:
    """Returns the record to store: the content with a checksum."""
    return _MARK + _checksum(address, content) + content


def without_checksum(address: Address, stored: bytes) -> bytes:
    """Returns the content of a stored record.

    Raises:
        CorruptRecord: the checksum is missing or does not match.
    """
    content = stored[_HEAD:]
    if stored[:_HEAD] != _MARK + _checksum(address, content):
        raise CorruptRecord
    return content


def _checksum(address: Address, content: bytes) -> bytes:
    return zlib.crc32(content, zlib.crc32(address.key, zlib.crc32(address.space.encode()))).to_bytes(4)

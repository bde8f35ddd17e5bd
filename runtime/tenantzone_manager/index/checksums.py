"""Checksums over records and their addresses, which detect records changed by a faulty disk or by hand."""

import zlib
from typing import Final

from tenantzone_manager.index.backend import Address

_MARK: Final = b"\xc1"
"""First byte of a record with a checksum.

Older records without a checksum are MessagePack or JSON, which never begin with this byte.
"""
_HEAD: Final = 5
"""Number of bytes of the mark and the checksum together."""


class CorruptRecord(Exception):
    """The stored record is not the one that was written under its key."""


def with_checksum(address: Address, content: bytes) -> bytes:
    """Returns the record to store: the content with a checksum."""
    return _MARK + _checksum(address, content) + content


def without_checksum(address: Address, stored: bytes) -> bytes:
    """Returns the content of a stored record, which may be an older record without a checksum.

    Raises:
        CorruptRecord: the checksum does not match.
    """
    if stored[:1] != _MARK:
        return stored
    content = stored[_HEAD:]
    if stored[1:_HEAD] != _checksum(address, content):
        raise CorruptRecord
    return content


def _checksum(address: Address, content: bytes) -> bytes:
    return zlib.crc32(content, zlib.crc32(address.key, zlib.crc32(address.space.encode()))).to_bytes(4)

"""Sealing: encrypts stored chunks, so that only the zone and instance that wrote a chunk can read it back.

Chunks are sealed with AES-256-GCM (NIST SP 800-38D). HKDF (RFC 5869) derives the key from the pool's salt key, the zone
and the id of the zone's last purge. So data from before a purge can't be decrypted again, even if files are restored.
The seal authenticates the content, the owner, the format of the bytes, and the identity of the chunk.
"""

import hashlib
import secrets
import threading
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tenantzone_contract.zone_config.instance import Instance

NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEADER: Final = b"TZD1"
"""The version of the file format."""


class CorruptObjectError(ValueError):
    """A chunk's stored data was changed, truncated or swapped since it was written, or is another zone's data."""


class Seal(Protocol):
    """Encrypts chunks for storage, and decrypts stored chunks."""

    @property
    def folder(self) -> str:
        """Name of the folder for the files that this seal encrypted."""

    def sealed_size(self, content_bytes: int) -> int:
        """Returns the size in bytes of the sealed form of ``content_bytes`` bytes."""

    def seal(self, content: memoryview, key: bytes, nonce: bytes, sealed: bytearray | memoryview) -> None:
        """Encrypt a chunk's content into ``sealed``, bound to the chunk's key and to a unique nonce."""

    def open(self, sealed: bytearray | memoryview, key: bytes, nonce: bytes, content: memoryview) -> None:
        """Decrypt sealed data into ``content``.

        Raises:
            CorruptObjectError: the data was not sealed for this chunk with this nonce. ``content`` is set to zeros.
        """


class ZoneSeal:
    """The seal of one zone's chunks. The zone's next purge requires a new seal.

    Args:
        salt_key: the pool's salt key.
        instance: the zone's instance.
        purge: the id of the zone's last purge; empty for none.
        use: the kind of storage. Data sealed for one kind of storage can't be opened for another kind.
    """

    def __init__(self, salt_key: bytes, instance: Instance, purge: str, use: bytes = b"tenantzone disk tier") -> None:
        # A digest, so that the folder's name reveals neither the zone nor the purge.
        self._folder = _digest(instance.digest, purge)
        info = use + bytes.fromhex(_digest(instance.zone, purge))
        self._cipher = AESGCM(HKDF(SHA256(), 32, salt=None, info=info).derive(salt_key))
        self._about = _HEADER + bytes.fromhex(self._folder)

    @property
    def folder(self) -> str:
        return self._folder

    def sealed_size(self, content_bytes: int) -> int:
        return len(_HEADER) + content_bytes + _TAG_BYTES

    def seal(self, content: memoryview, key: bytes, nonce: bytes, sealed: bytearray | memoryview) -> None:
        sealed[: len(_HEADER)] = _HEADER
        self._cipher.encrypt_into(nonce, content, self._about + key, memoryview(sealed)[len(_HEADER) :])

    def open(self, sealed: bytearray | memoryview, key: bytes, nonce: bytes, content: memoryview) -> None:
        try:
            if bytes(sealed[: len(_HEADER)]) != _HEADER:
                raise InvalidTag
            self._cipher.decrypt_into(nonce, memoryview(sealed)[len(_HEADER) :], self._about + key, content)
        except InvalidTag:
            content[:] = bytes(len(content))
            raise CorruptObjectError("the chunk's content was changed, or belongs to another chunk") from None


class Buffers:
    """One buffer for a sealed chunk per thread. Buffers are reused, because allocating one is slower than filling it.

    Args:
        size: size of a sealed chunk in bytes.
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


def new_nonce() -> bytes:
    """Returns a random nonce. Among up to 2^32 nonces, any two are equal with a probability below 2^-32."""
    return secrets.token_bytes(NONCE_BYTES)


def _digest(*parts: str) -> str:
    message = b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in parts)
    return hashlib.sha256(message).hexdigest()

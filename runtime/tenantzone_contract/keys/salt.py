"""Computes cache salts, which separate tenants' prefixes, from the pool's salt key.

vLLM hashes a request's ``cache_salt`` into the hash of its first block, and thereby into the hashes of later blocks.
Therefore, two requests can share cached blocks only if they have the same salt. Engines with the same key compute the
same salt for a tenant, and so equal hashes for equal prompts. A gateway that has the key can add the salt to a request,
and route by the hashes. The frontend recognizes a salt that belongs to the request's tenant, and leaves it unchanged.

vLLM publishes salts in its KV events. Therefore, salts are computed so that they reveal neither the tenant nor the key.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Final

SALT_KEY_FILE: Final = "key"
"""Name of the entry with the key in its Secret, and of the file where the Secret is mounted."""

MIN_KEY_BYTES: Final = 32
_MAX_KEY_BYTES: Final = 1024
_KEY_ID_DIGITS: Final = 16
_PART_DIGITS: Final = 32
_SALT: Final = re.compile(r"[0-9a-f]{64}")


class SaltKeyError(ValueError):
    """A file is not a salt key; the message never contains its content."""


def salt_secret_name(pool: str) -> str:
    """Returns the name of the Secret with the pool's salt key, in the pool's namespace."""
    return f"tenantzone-salt-{pool}"


def new_salt_key() -> bytes:
    """Returns a new random key."""
    return secrets.token_bytes(MIN_KEY_BYTES)


def parse_salt_key(content: bytes) -> bytes:
    """Parse a key from a file's content, in hexadecimal digits or in base64; surrounding white space is ignored.

    Raises:
        SaltKeyError: the content is neither hexadecimal nor base64, or the key is too short or too long.
    """
    text = content.strip()
    key = _decoded(text)
    if key is None:
        raise SaltKeyError("expected a key in hexadecimal digits or in base64")
    if not MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise SaltKeyError(
            f"a salt key must have {MIN_KEY_BYTES} to {_MAX_KEY_BYTES} bytes, but this key has {len(key)}"
        )
    return key


def salt_key_id(key: bytes) -> str:
    """Returns the id of a key, 16 hexadecimal digits, which distinguishes keys without revealing them."""
    return _digest(key, "salt key id").hex()[:_KEY_ID_DIGITS]


def tenant_salt(key: bytes, tenant: str, client_salt: str = "") -> str:
    """Returns the cache salt of a tenant's requests, 64 hexadecimal digits.

    Different tenants get different salts, and so do different ``client_salt`` values of one tenant. A ``client_salt``
    that this function made for the same tenant is returned unchanged, so a gateway may add the salt before the engine
    does. A salt made for another tenant is treated like any other text.

    Args:
        key: the pool's key.
        tenant: the tenant's name.
        client_salt: the request's ``cache_salt``; empty if the request has none.
    """
    if is_salt_of(key, tenant, client_salt):
        return client_salt
    namespace = _digest(key, "salt", tenant, client_salt).hex()[:_PART_DIGITS]
    return namespace + _mark(key, tenant, namespace)


def is_salt_of(key: bytes, tenant: str, salt: str) -> bool:
    """Returns whether a salt was made for this tenant with this key."""
    if not _SALT.fullmatch(salt):
        return False
    return hmac.compare_digest(salt[_PART_DIGITS:], _mark(key, tenant, salt[:_PART_DIGITS]))


def _mark(key: bytes, tenant: str, namespace: str) -> str:
    """Returns the second half of a salt, a MAC with which anyone who has the key can verify the salt's tenant."""
    return _digest(key, "salt of", tenant, namespace).hex()[:_PART_DIGITS]


def _digest(key: bytes, *parts: str) -> bytes:
    # Include each part's length, so that no two lists of parts make the same message. Accept lone surrogates, because
    # JSON can contain them.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    message = b"".join(len(part).to_bytes(4) + part for part in encoded)
    return hmac.digest(key, message, hashlib.sha256)


def _decoded(text: bytes) -> bytes | None:
    try:
        return binascii.unhexlify(text)
    except binascii.Error:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None

"""Cache salts, which make a tenant's prefix namespace; computed from the pool's salt key.

vLLM hashes a request's ``cache_salt`` into its first block, and so into all that follow: two requests share cached
blocks only under the same salt. Engines with the same key give a tenant the same salt, and so equal hashes for equal
prompts. A gateway with the key can add the same salt to a request before it chooses an engine by the hashes; the
frontend recognizes the tenant's own salt, and keeps it.

vLLM publishes salts in its KV events, so they reveal neither the tenant nor the key.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Final

SALT_KEY_FILE: Final = "key"
"""The name of the key in its Secret, and of the file if the Secret is mounted."""

MIN_KEY_BYTES: Final = 32
_MAX_KEY_BYTES: Final = 1024
_KEY_ID_DIGITS: Final = 16
_PART_DIGITS: Final = 32
_SALT: Final = re.compile(r"[0-9a-f]{64}")


class SaltKeyError(ValueError):
    """The content of a file that is no salt key; the message never contains the content."""


def salt_secret_name(pool: str) -> str:
    """Returns the name of the Secret with the pool's salt key, in the pool's namespace."""
    return f"tenantzone-salt-{pool}"


def new_salt_key() -> bytes:
    """Returns a new random key."""
    return secrets.token_bytes(MIN_KEY_BYTES)


def parse_salt_key(content: bytes) -> bytes:
    """Returns the key in a file, written in hexadecimal digits or in base64; surrounding white space is ignored.

    Raises:
        SaltKeyError: it is neither, or too short.
    """
    text = content.strip()
    key = _decoded(text)
    if key is None:
        raise SaltKeyError("expected a key in hexadecimal digits or in base64")
    if not MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise SaltKeyError(f"a key has {MIN_KEY_BYTES} to {_MAX_KEY_BYTES} bytes, this one {len(key)}")
    return key


def salt_key_id(key: bytes) -> str:
    """Returns the id of a key, 16 hexadecimal digits: it distinguishes keys without revealing them."""
    return _digest(key, "salt key id").hex()[:_KEY_ID_DIGITS]


def tenant_salt(key: bytes, tenant: str, client_salt: str = "") -> str:
    """Returns the cache salt of a tenant's requests, 64 hexadecimal digits.

    It stands for the tenant's own namespace, with the client's namespace in it. A salt made for this tenant is returned
    unchanged, so it does not matter whether a gateway has already added it. Another tenant's salt counts as a client's
    salt, like any other text.

    Args:
        key: the pool's key.
        tenant: the tenant's name.
        client_salt: the request's ``cache_salt``; empty if it has none.
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
    """Returns the second half of a salt, by which holders of the key recognize its tenant."""
    return _digest(key, "salt of", tenant, namespace).hex()[:_PART_DIGITS]


def _digest(key: bytes, *parts: str) -> bytes:
    # Include each part's length, so that no two lists of parts make the same message. JSON can express half of a
    # surrogate pair, which must not raise here.
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

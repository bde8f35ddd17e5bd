"""Tokens for an engine's admin port, with which the operator and scrapers read the report on all tenants.

The operator has one key, and derives a token for each pool from this key. Therefore, a malicious engine learns only the
token of its own pool.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

ADMIN_TOKEN_HEADER: Final = "TenantZone-Admin-Token"
"""Header for the token, because the API server's proxy to pods does not pass on ``Authorization``."""

ADMIN_REALM: Final = "tenantzone"
"""Realm in the ``WWW-Authenticate`` header of a refused request."""

TOKEN_FILE: Final = "token"
"""Name of the Secret's entry with the newest token, for clients; Prometheus reads it as a ``credentials_file``."""
ACCEPTED_FILE: Final = "accepted"
"""Name of the Secret's entry with the tokens that an engine accepts, one per line, the newest first."""
MAX_ACCEPTED: Final = 2
"""Maximum number of accepted tokens: the newest token, and the previous token while the key is rotated."""

ADMIN_KEY_SECRET: Final = "tenantzone-operator-key"
"""Name of the Secret with the operator's key, in the operator's namespace."""
KEY_FILE: Final = "key"
PREVIOUS_KEY_FILE: Final = "previous"
"""Name of the entry with the previous key, which exists only while the key is rotated."""
_KEY_BYTES: Final = 32

_TOKEN: Final = re.compile(rb"[A-Za-z0-9_-]{32,256}")


class AdminTokenError(ValueError):
    """A file has no valid tokens, or a Secret has no valid key; the message never contains their content."""


def admin_secret_name(pool: str) -> str:
    """Returns the name of the Secret with the pool's token, in the pool's namespace."""
    return f"tenantzone-admin-{pool}"


def new_admin_key() -> bytes:
    """Returns a new random key for an operator."""
    return secrets.token_bytes(_KEY_BYTES)


def parse_admin_keys(data: Mapping[str, str]) -> tuple[bytes, ...]:
    """Returns the operator's keys from the data of its Secret, the newest first.

    Args:
        data: the Secret's data in base64, as in the API.

    Raises:
        AdminTokenError: the key is missing, is not base64, or is too short.
    """
    try:
        keys = [base64.b64decode(data[name], validate=True) for name in (KEY_FILE, PREVIOUS_KEY_FILE) if name in data]
    except ValueError:
        keys = []
    if KEY_FILE not in data or not keys or any(len(key) < _KEY_BYTES for key in keys):
        raise AdminTokenError(f"expected a {KEY_FILE} of at least {_KEY_BYTES} bytes")
    return tuple(keys)


def admin_token(key: bytes, namespace: str, pool: str) -> str:
    """Returns the token of a pool, derived from a key of the operator, as base64 that is safe in URLs and headers."""
    digest = hmac.digest(key, f"{namespace}/{pool}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def admin_secret_data(tokens: Sequence[str]) -> dict[str, bytes]:
    """Returns the content of a pool's Secret. The tokens must be sorted, the newest first."""
    return {TOKEN_FILE: tokens[0].encode(), ACCEPTED_FILE: "\n".join(tokens).encode()}


def parse_accepted(content: bytes) -> tuple[bytes, ...]:
    """Returns the tokens in a file's content, without surrounding white space.

    Raises:
        AdminTokenError: the file has no tokens or too many, or a token has the wrong length or invalid characters.
    """
    tokens = tuple(filter(None, (line.strip(b" \t\r") for line in content.split(b"\n"))))
    if not 1 <= len(tokens) <= MAX_ACCEPTED:
        raise AdminTokenError(f"expected 1 to {MAX_ACCEPTED} tokens, one per line, not {len(tokens)}")
    if not all(map(_TOKEN.fullmatch, tokens)):
        raise AdminTokenError("a token must have 32 to 256 characters from A-Z, a-z, 0-9, _ and -")
    return tokens

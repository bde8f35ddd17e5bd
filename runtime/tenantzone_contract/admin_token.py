"""Tokens of the admin port, which let the operator and scrapers read an engine's report on all its tenants.

The operator has one key, and each pool a token that is derived from it. A malicious engine only learns the token of its
own pool, which its pod mounts anyway.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

ADMIN_TOKEN_HEADER: Final = "TenantZone-Admin-Token"
"""A header for the token in place of ``Authorization``, which the API server's proxy to pods does not pass on."""

ADMIN_REALM: Final = "tenantzone"
"""The realm that an engine names when it refuses a request."""

TOKEN_FILE: Final = "token"
"""The newest token in its Secret, for clients: Prometheus reads it as a ``credentials_file``."""
ACCEPTED_FILE: Final = "accepted"
"""The tokens that an engine accepts, one per line, the newest first."""
MAX_ACCEPTED: Final = 2
"""The newest token, and the previous one during a change."""

ADMIN_KEY_SECRET: Final = "tenantzone-operator-key"
"""The Secret with the operator's key, in its own namespace."""
KEY_FILE: Final = "key"
PREVIOUS_KEY_FILE: Final = "previous"
"""The previous key, only present during a change."""
_KEY_BYTES: Final = 32

_TOKEN: Final = re.compile(rb"[A-Za-z0-9_-]{32,256}")


class AdminTokenError(ValueError):
    """A file without tokens, or a Secret without a key; the message never contains the content."""


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
        AdminTokenError: there is no key, or one that is too short.
    """
    try:
        keys = [base64.b64decode(data[name], validate=True) for name in (KEY_FILE, PREVIOUS_KEY_FILE) if name in data]
    except ValueError:
        keys = []
    if KEY_FILE not in data or not keys or any(len(key) < _KEY_BYTES for key in keys):
        raise AdminTokenError(f"expected a {KEY_FILE} of at least {_KEY_BYTES} bytes")
    return tuple(keys)


def admin_token(key: bytes, namespace: str, pool: str) -> str:
    """Returns the token of a pool under a key of the operator, in characters that a URL and a header can contain."""
    digest = hmac.digest(key, f"{namespace}/{pool}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def admin_secret_data(tokens: Sequence[str]) -> dict[str, bytes]:
    """Returns the content of a pool's Secret for these tokens, the newest first."""
    return {TOKEN_FILE: tokens[0].encode(), ACCEPTED_FILE: "\n".join(tokens).encode()}


def parse_accepted(content: bytes) -> tuple[bytes, ...]:
    """Returns the tokens in a file's content, without surrounding white space.

    Raises:
        AdminTokenError: there are none or too many, or one is too short or contains other characters.
    """
    tokens = tuple(filter(None, (line.strip(b" \t\r") for line in content.split(b"\n"))))
    if not 1 <= len(tokens) <= MAX_ACCEPTED:
        raise AdminTokenError(f"expected 1 to {MAX_ACCEPTED} tokens, one in each line, and not {len(tokens)}")
    if not all(map(_TOKEN.fullmatch, tokens)):
        raise AdminTokenError("a token has 32 to 256 of the letters A-Z a-z 0-9 _ -")
    return tokens

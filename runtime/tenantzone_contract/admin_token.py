"""Tokens of the admin port: what lets the operator, and whoever scrapes, read what an engine says of all its tenants.

The operator has one key, and each pool a token that is made of it. An engine that is not what it seems learns the token
of its own pool, which its pod mounts anyway.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

ADMIN_TOKEN_HEADER: Final = "TenantZone-Admin-Token"
"""Where a token may be shown in place of ``Authorization``, which the API server's proxy to pods keeps for itself."""

ADMIN_REALM: Final = "tenantzone"
"""Of which an engine speaks that refuses a request."""

TOKEN_FILE: Final = "token"
"""The newest token in its Secret, for who asks: Prometheus reads it as a ``credentials_file``."""
ACCEPTED_FILE: Final = "accepted"
"""The tokens that an engine takes, one in each line, the newest first."""
MAX_ACCEPTED: Final = 2
"""The newest, and the one before it while it is being changed."""

ADMIN_KEY_SECRET: Final = "tenantzone-operator-key"
"""The Secret of the operator's own namespace that holds its key."""
KEY_FILE: Final = "key"
PREVIOUS_KEY_FILE: Final = "previous"
"""The key before, while tokens are being changed; else it is not there."""
_KEY_BYTES: Final = 32

_TOKEN: Final = re.compile(rb"[A-Za-z0-9_-]{32,256}")


class AdminTokenError(ValueError):
    """A file that holds no tokens, or a Secret without a key; the message never shows the content."""


def admin_secret_name(pool: str) -> str:
    """The name of the Secret that holds the pool's token, in the pool's namespace."""
    return f"tenantzone-admin-{pool}"


def new_admin_key() -> bytes:
    """A new random key for an operator."""
    return secrets.token_bytes(_KEY_BYTES)


def parse_admin_keys(data: Mapping[str, str]) -> tuple[bytes, ...]:
    """The operator's keys from the data of its Secret, the newest first.

    Args:
        data: as the API server has it, in base64.

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
    """The token of a pool under a key of the operator, in letters that a URL and a header can hold."""
    digest = hmac.digest(key, f"{namespace}/{pool}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def admin_secret_data(tokens: Sequence[str]) -> dict[str, bytes]:
    """What the Secret of a pool with these tokens holds, the newest first."""
    return {TOKEN_FILE: tokens[0].encode(), ACCEPTED_FILE: "\n".join(tokens).encode()}


def parse_accepted(content: bytes) -> tuple[bytes, ...]:
    """The tokens that a file's content names; white space around them is no part of them.

    Raises:
        AdminTokenError: there is none, there are too many, or one is too short or of other letters.
    """
    tokens = tuple(filter(None, (line.strip(b" \t\r") for line in content.split(b"\n"))))
    if not 1 <= len(tokens) <= MAX_ACCEPTED:
        raise AdminTokenError(f"expected 1 to {MAX_ACCEPTED} tokens, one in each line, and not {len(tokens)}")
    if not all(map(_TOKEN.fullmatch, tokens)):
        raise AdminTokenError("a token has 32 to 256 of the letters A-Z a-z 0-9 _ -")
    return tokens

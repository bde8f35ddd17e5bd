"""The one way that a pool's config asks for, and nothing in its place."""

from pathlib import Path

from tenantzone_contract.identity import CA_FILE, JWKS_FILE, SECRET_FILE, IdentityConfig
from tenantzone_runtime.door.identities.asking import Identity
from tenantzone_runtime.door.identities.key_ring import KeyRing
from tenantzone_runtime.door.identities.keys import KeyIdentity
from tenantzone_runtime.door.identities.tokens import TokenIdentity
from tenantzone_runtime.door.identities.trusted_header import HeaderIdentity


def make_identity(declared: IdentityConfig | None, keys: KeyRing, folder: Path) -> Identity:
    """The way in which tenants are known.

    Args:
        declared: by the pool; None: by API keys.
        keys: the API keys that are mounted.
        folder: where secrets, certificates and token keys are mounted.
    """
    if declared is not None and declared.trusted_header is not None:
        made: Identity = HeaderIdentity(declared.trusted_header, folder)
    elif declared is not None and declared.jwt is not None:
        made = TokenIdentity(declared.jwt, folder)
    else:
        made = KeyIdentity(keys)
    made.refresh()
    return made


def has_identity_files(folder: Path) -> bool:
    """Whether what tenants are known by is mounted, besides API keys; yes if that can't be told."""
    try:
        return any((folder / name).exists() for name in (SECRET_FILE, CA_FILE, JWKS_FILE))
    except OSError:
        return True

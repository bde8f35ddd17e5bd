"""Selects the way to identify tenants from a pool's config, without a fallback."""

from pathlib import Path

from tenantzone_contract.zone_config.identity import CA_FILE, JWKS_FILE, SECRET_FILE, IdentityConfig
from tenantzone_runtime.frontend.identities.asking import Identity
from tenantzone_runtime.frontend.identities.key_ring import KeyRing
from tenantzone_runtime.frontend.identities.keys import KeyIdentity
from tenantzone_runtime.frontend.identities.tokens import TokenIdentity
from tenantzone_runtime.frontend.identities.trusted_header import HeaderIdentity


def make_identity(declared: IdentityConfig | None, keys: KeyRing, folder: Path) -> Identity:
    """Create the identity that a pool's config selects, and read the identity's files.

    Args:
        declared: the pool's ``identity``; None for API keys.
        keys: the mounted API keys.
        folder: the folder in which secrets, certificates and the keys of tokens are mounted.
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
    """Returns whether a secret, CAs or token keys are mounted in the folder; True if the folder can't be read."""
    try:
        return any((folder / name).exists() for name in (SECRET_FILE, CA_FILE, JWKS_FILE))
    except OSError:
        return True

"""API keys of the demo's tenants, made on the spot: in clear for the clients, as hashes for the engine."""

import hashlib
import secrets
from pathlib import Path


def make_keys(folder: Path, tenants: tuple[str, ...]) -> dict[str, str]:
    """Make a key for each tenant; the folder gets one file per tenant, as a mounted Secret would have."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = {tenant: f"sk-{tenant}-{secrets.token_urlsafe(24)}" for tenant in tenants}
    for tenant, key in keys.items():
        (folder / tenant).write_text(f"sha256:{hashlib.sha256(key.encode()).hexdigest()}\n")
    return keys

"""``salt TENANT``: prints the cache salt that a gateway must add to a tenant's requests, made with the pool's key."""

import base64
import binascii
from pathlib import Path

from tenantzone_cli.api import Api
from tenantzone_contract.keys.salt import SALT_KEY_FILE, SaltKeyError, parse_salt_key, salt_secret_name
from tenantzone_contract.kube_names import API, POOLS, resource_path


class SaltError(Exception):
    """No usable salt key was found; the message gives the reason."""


def key_of_file(path: Path) -> bytes:
    """Returns the salt key in a file, parsed as engines do.

    Raises:
        SaltError: the file can't be read, or contains no valid key.
    """
    try:
        return parse_salt_key(path.read_bytes())
    except OSError as error:
        raise SaltError(f"{path}: {error.strerror}") from None
    except SaltKeyError as error:
        raise SaltError(f"{path}: {error}") from None


def key_of_pool(api: Api, namespace: str, pool: str | None) -> bytes:
    """Returns the salt key of a pool from the pool's Secret, read with the user's rights.

    Args:
        api: a client of the API server.
        namespace: the pool's namespace.
        pool: the pool's name; None if the namespace has exactly one pool.

    Raises:
        ApiError: the Secret does not exist, or the user may not read it.
        Unreachable: the API server does not answer.
        SaltError: the Secret contains no valid key, or ``pool`` is None and the namespace has no or several pools.
    """
    name = salt_secret_name(pool or _only_pool(api, namespace))
    data = api.get(resource_path("/api/v1", namespace, "secrets", name)).get("data") or {}
    try:
        return parse_salt_key(base64.b64decode(data.get(SALT_KEY_FILE, ""), validate=True))
    except (SaltKeyError, binascii.Error) as error:
        raise SaltError(f"Secret {namespace}/{name}, {SALT_KEY_FILE}: {error}") from None


def _only_pool(api: Api, namespace: str) -> str:
    pools = sorted(body["metadata"]["name"] for body in api.list(resource_path(API, namespace, POOLS)))
    if len(pools) == 1:
        return str(pools[0])
    found = (
        f"several ZonePools ({', '.join(pools)}); name one with --pool"
        if pools
        else "no ZonePool; set -n to the namespace of the pool"
    )
    raise SaltError(f"namespace {namespace} has {found}")

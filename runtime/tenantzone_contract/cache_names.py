"""The names by which a pool's engines and whoever manages the KV-cache manager mean the same groups and instances."""

import hashlib
import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LONGEST: Final = 128
"""Characters of a name that the manager takes."""


def zone_group(namespace: str, pool: str, tenant: str) -> str:
    """The instance group of one zone of a pool: it has quotas of its own."""
    return _short(f"{namespace}.{pool}.{_part(tenant)}")


def pool_group(namespace: str, pool: str) -> str:
    """The instance group of all zones of a pool that have none of their own: they share its quotas."""
    return _short(f"{namespace}.{pool}")


def instance_name(tenant: str, digest: str) -> str:
    """The name of the instance of a tenant's zone.

    Args:
        tenant: the zone's.
        digest: 64 hexadecimal digits, over all that the bytes of its blocks depend on.
    """
    return f"{_part(tenant)}.{digest}"


def is_instance_of(name: str, tenant: str) -> bool:
    """Whether an instance is one of a tenant's zone, whatever model it is of."""
    return name.rpartition(".")[0] == _part(tenant)


def _part(text: str) -> str:
    """A text as a part of a name: itself, if it is plain and short, else its digest."""
    return text if _PLAIN.fullmatch(text) else f"x-{_digest(text)}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"x-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]

"""The names by which a pool's engines, the KV-cache manager and who manages it mean the same things."""

import hashlib
import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_COPY: Final = "-"
"""Before the name of a copy; it is in no id of a write."""
_LONGEST: Final = 128
"""Characters of a name that the manager takes."""


def zone_group(namespace: str, pool: str, tenant: str) -> str:
    """The instance group of one zone of a pool: it has quotas of its own."""
    name = f"{namespace}.{pool}.{_part(tenant)}"
    # No pool's name has an underscore.
    return name if len(name) <= _LONGEST else f"{namespace}.x_{_digest(name)}"


def pool_group(namespace: str, pool: str) -> str:
    """The instance group of all zones of a pool that have none of their own: they share its quotas."""
    return f"{namespace}.{pool}"


def is_group_of(name: str, namespace: str) -> bool:
    """Whether this is the group of a pool or zone of a namespace, whose own name has no dots."""
    return name.startswith(f"{namespace}.")


def instance_name(tenant: str, digest: str, purge: str = "") -> str:
    """The name of the instance of a tenant's zone between two purges.

    Args:
        tenant: the zone's.
        digest: hexadecimal digits, over all that the bytes of its blocks depend on; 192 bits of it are in the name.
        purge: the id of its last purge; empty: none.
    """
    return f"{owner_part(tenant)}.{_mark(purge)}.{digest[:48]}"


def owner_part(tenant: str) -> str:
    """What the names of all instances of a tenant's zone begin with, up to a dot."""
    return _part(tenant)


def owner_of(name: str) -> str:
    """The owner's part of an instance's name; empty: it has none."""
    owner, _, rest = name.partition(".")
    return owner if rest else ""


def is_instance_of(name: str, tenant: str) -> bool:
    """Whether an instance is one of a tenant's zone, whatever model it is of."""
    return owner_of(name) == owner_part(tenant)


def is_since_purge(name: str, purge: str) -> bool:
    """Whether an instance of a zone has nothing in it that was stored before this purge."""
    return name.split(".")[1:2] == [_mark(purge)]


def copy_name(location: str, copy: str) -> str:
    """The id of a location to which the bytes of another one are copied; no write's and no other copy's is the same."""
    return f"{written_as(location)}{_COPY}{copy}"


def written_as(location: str) -> str:
    """The id of the location that a writer has sealed these bytes for: a copy opens as what it was copied from."""
    return location.partition(_COPY)[0]


def _mark(purge: str) -> str:
    return _digest(purge)[:8]


def _part(text: str) -> str:
    """A text as a part of a name: itself, if it is plain and short, else its digest."""
    return text if _PLAIN.fullmatch(text) else f"x-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]

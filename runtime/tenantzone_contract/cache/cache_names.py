"""The names that a pool's engines, the KV-cache manager and the operator share."""

import hashlib
import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_COPY: Final = "-"
"""Separator in the id of a copy. The id of a location that an engine wrote does not contain this character."""
_LONGEST: Final = 128
"""Maximum number of characters in a name that the manager accepts."""


def zone_group(namespace: str, pool: str, tenant: str) -> str:
    """Returns the name of the instance group of a single zone with quotas of its own."""
    name = f"{namespace}.{pool}.{_part(tenant)}"
    # This name differs from names of pools' groups, because no pool's name has an underscore.
    return name if len(name) <= _LONGEST else f"{namespace}.x_{_digest(name)}"


def pool_group(namespace: str, pool: str) -> str:
    """Returns the name of a pool's instance group. Zones without a group of their own share this group's quotas."""
    return f"{namespace}.{pool}"


def is_group_of(name: str, namespace: str) -> bool:
    """Returns whether ``name`` is the group of a pool or zone in this namespace. Namespaces' names contain no dots."""
    return name.startswith(f"{namespace}.")


def instance_name(tenant: str, digest: str, purge: str = "") -> str:
    """Returns the name of the instance that a tenant's zone uses until its next purge.

    Args:
        tenant: the zone's tenant.
        digest: hash, in hexadecimal digits, over everything that the blocks' bytes depend on. The name contains 192
            bits of the hash.
        purge: the id of the zone's last purge; empty if the zone was never purged.
    """
    return f"{owner_part(tenant)}.{_mark(purge)}.{digest[:48]}"


def owner_part(tenant: str) -> str:
    """Returns the part before the first dot, which the names of all instances of a tenant's zone share."""
    return _part(tenant)


def owner_of(name: str) -> str:
    """Returns the owner's part of an instance's name, or an empty string if the name has no owner."""
    owner, _, rest = name.partition(".")
    return owner if rest else ""


def is_instance_of(name: str, tenant: str) -> bool:
    """Returns whether an instance belongs to a tenant's zone, for any model."""
    return owner_of(name) == owner_part(tenant)


def is_since_purge(name: str, purge: str) -> bool:
    """Returns whether an instance contains only blocks that were stored after this purge."""
    return name.split(".")[1:2] == [_mark(purge)]


def copy_name(location: str, copy: str) -> str:
    """Returns the location id for a copy of the location ``location``. No write and no other copy has this id."""
    return f"{written_as(location)}{_COPY}{copy}"


def written_as(location: str) -> str:
    """Returns the location id that the seal of the bytes covers. For a copy, this is the original location's id."""
    return location.partition(_COPY)[0]


def _mark(purge: str) -> str:
    return _digest(purge)[:8]


def _part(text: str) -> str:
    """Returns a text as a part of a name: unchanged if it is plain and short, else its digest."""
    return text if _PLAIN.fullmatch(text) else f"x-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]

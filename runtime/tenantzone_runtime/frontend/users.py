"""Identifies the tenant's user who sends a request, by a header that the zone names. Only a digest is passed on."""

from collections.abc import Sequence
from typing import Final

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.seal import user_digest

MAX_BYTES: Final = 256
"""Maximum number of bytes of a user's name."""


def naming_users(zone: ZoneConfig | None) -> frozenset[bytes]:
    """Returns the lower-case name of the header that identifies a zone's users; empty if the zone sets none."""
    header = None if zone is None else zone.fairness.header
    return frozenset() if header is None else frozenset({header.encode()})


def user_of(headers: Sequence[tuple[bytes, bytes]], zone: ZoneConfig | None, key: bytes) -> str:
    """Returns the digest of the user that a request names; empty if the zone has no users, or the request names none.

    Args:
        headers: the request's headers.
        zone: the tenant's zone; None if the tenant has no declared zone.
        key: the seal key.

    Raises:
        Refusal: the header is repeated, or its value is not a valid user name.
    """
    naming = naming_users(zone)
    if zone is None or not naming:
        return ""
    header = zone.fairness.header
    values = [value for name, value in headers if name.lower() in naming]
    if not values:
        return ""
    if len(values) > 1:
        raise Refusal(400, "user", f"The request has several headers '{header}'; send only one", param=header)
    name = values[0].strip(b" \t")
    if not name:
        return ""
    if len(name) > MAX_BYTES or not all(0x20 <= byte < 0x7F for byte in name):
        message = f"The header '{header}' must name a user by at most {MAX_BYTES} printable ASCII characters"
        raise Refusal(400, "user", message, param=header)
    return user_digest(key, zone.tenant, name.decode("ascii"))

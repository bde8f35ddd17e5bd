"""The tenant's user who sends a request, from a header that the tenant chooses, as a digest that hides the name."""

from collections.abc import Sequence
from typing import Final

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.seal import user_digest

MAX_BYTES: Final = 256
"""Maximum number of bytes of a user's name."""


def naming_users(zone: ZoneConfig | None) -> frozenset[bytes]:
    """Returns the lower-case name of the header that identifies users, which is not passed on; empty if unset."""
    header = None if zone is None else zone.fairness.header
    return frozenset() if header is None else frozenset({header.encode()})


def user_of(headers: Sequence[tuple[bytes, bytes]], zone: ZoneConfig | None, key: bytes) -> str:
    """Returns the digest of the user that a request names; empty if the zone has no users, or the request names none.

    Args:
        headers: of the request.
        zone: of its tenant; None: a zone without users.
        key: the seal key.

    Raises:
        Refusal: the header is repeated, or is not a name.
    """
    naming = naming_users(zone)
    if zone is None or not naming:
        return ""
    header = zone.fairness.header
    values = [value for name, value in headers if name.lower() in naming]
    if not values:
        return ""
    if len(values) > 1:
        raise Refusal(400, "user", f"The request has several headers '{header}'; send one of them", param=header)
    name = values[0].strip(b" \t")
    if not name:
        return ""
    if len(name) > MAX_BYTES or not all(0x20 <= byte < 0x7F for byte in name):
        message = f"The header '{header}' must name a user by at most {MAX_BYTES} printable ASCII characters"
        raise Refusal(400, "user", message, param=header)
    return user_digest(key, zone.tenant, name.decode("ascii"))

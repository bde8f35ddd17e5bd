"""Fields that the API accepts before anything acts on them. What a user has set there is reported, not ignored."""

from collections.abc import Mapping
from typing import Any


def zone_fields(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths below a TenantZone's ``spec`` whose values ask for more than is enforced."""
    return ("scrub",) if spec.get("scrub") == "OnTransfer" else ()


def pool_fields(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths below a ZonePool's ``spec`` whose values ask for more than is enforced."""
    return ("identity",) if spec.get("identity") else ()

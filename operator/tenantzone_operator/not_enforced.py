"""Fields that the API accepts before anything acts on them. What a user has set there is reported, not ignored."""

from collections.abc import Mapping
from typing import Any


def zone_fields(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths below a TenantZone's ``spec`` whose values ask for more than is enforced."""
    return _named(
        {
            "weight": spec.get("weight", 1) != 1,
            "lending.maxLoan": "maxLoan" in spec.get("lending", {}),
            "idle.forgetAfter": "forgetAfter" in spec.get("idle", {}),
            "scrub": spec.get("scrub") == "OnTransfer",
        }
    )


def pool_fields(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths below a ZonePool's ``spec`` whose values ask for more than is enforced."""
    return _named(
        {
            "watermarks": any(spec.get("watermarks", {}).values()),
            "unknownTenants.mode": spec.get("unknownTenants", {}).get("mode") == "AutoRegister",
            "identity": bool(spec.get("identity")),
        }
    )


def _named(asked: Mapping[str, bool]) -> tuple[str, ...]:
    return tuple(path for path, is_asked in asked.items() if is_asked)

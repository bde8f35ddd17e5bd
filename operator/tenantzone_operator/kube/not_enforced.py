"""Fields that the API accepts before anything acts on them, so that what a user has set there is reported."""

from collections.abc import Mapping
from typing import Any


def pool_fields(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths below a ZonePool's ``spec`` whose values ask for more than is enforced."""
    keys = spec.get("identity", {}).get("apiKeys", {})
    # Which Secrets hold the keys is said by what the pods mount.
    return ("identity.apiKeys.secretSelector",) if keys.get("secretSelector") else ()

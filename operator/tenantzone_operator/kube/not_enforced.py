"""Fields that the API accepts before anything acts on them, so that what a user has set there is reported."""

from collections.abc import Mapping
from typing import Any


def pool_fields(spec: Mapping[str, Any], has_manager: bool) -> tuple[str, ...]:
    """The paths below a ZonePool's ``spec`` whose values ask for more than is enforced.

    Args:
        spec: of the pool.
        has_manager: whether the operator is told of a KV-cache manager.
    """
    keys = spec.get("identity", {}).get("apiKeys", {})
    # Which Secrets hold the keys is said by what the pods mount.
    fields = ["identity.apiKeys.secretSelector"] if keys.get("secretSelector") else []
    if spec.get("tiers", {}).get("manager") and not has_manager:
        fields.append("tiers.manager (the operator is started without --manager-url)")
    return tuple(fields)

"""Finds fields that the API accepts but this version does not enforce, so that the status can report them."""

from collections.abc import Mapping
from typing import Any


def pool_fields(spec: Mapping[str, Any], has_manager: bool) -> tuple[str, ...]:
    """Returns the paths below a ZonePool's ``spec`` whose values are not enforced.

    Args:
        spec: the pool's spec.
        has_manager: whether the operator has a KV-cache manager.
    """
    keys = spec.get("identity", {}).get("apiKeys", {})
    # The engines read API keys from Secrets that their pods mount, so this selector of Secrets has no effect.
    fields = ["identity.apiKeys.secretSelector"] if keys.get("secretSelector") else []
    if spec.get("tiers", {}).get("manager") and not has_manager:
        fields.append("tiers.manager (the operator is started without --manager-url)")
    return tuple(fields)

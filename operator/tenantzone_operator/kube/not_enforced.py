"""Fields that the API accepts before anything acts on them. What a user has set there is reported, not ignored."""

from collections.abc import Mapping
from typing import Any


def pool_fields(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths below a ZonePool's ``spec`` whose values ask for more than is enforced."""
    return ("identity",) if spec.get("identity") else ()

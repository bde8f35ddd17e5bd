"""Fields that the API accepts before anything acts on them, so that what a user has set there is reported."""

from collections.abc import Mapping
from typing import Any


def pool_fields(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths below a ZonePool's ``spec`` whose values ask for more than is enforced."""
    return ("identity",) if spec.get("identity") else ()

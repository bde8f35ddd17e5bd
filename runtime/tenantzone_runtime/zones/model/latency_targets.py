"""The latency targets in a zone's config."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LatencyTargets:
    """The latency targets of a zone, in seconds. None means that the zone has no such target."""

    token_time_seconds: float | None = None
    """Time between two tokens of a request, at the 99th percentile."""
    first_token_seconds: float | None = None
    """Time from a request's arrival to its first token, at the 99th percentile."""

    def __bool__(self) -> bool:
        return self.token_time_seconds is not None or self.first_token_seconds is not None


NO_TARGETS: Final = LatencyTargets()

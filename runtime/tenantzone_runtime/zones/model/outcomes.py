"""The outcomes of a zone's latency targets."""

from dataclasses import dataclass
from typing import Literal

from tenantzone_contract.reports.words import LatencyReason

TargetName = Literal["token_time", "first_token"]


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """A latency target of a zone and the zone's actual latency, in seconds."""

    target: float
    actual: float | None
    """The recent 99th percentile of the latency; None if there was no recent request."""
    met: bool | None
    """Whether the target is met; None if there was no recent request."""
    reason: LatencyReason

"""What became of a zone's latency targets."""

from dataclasses import dataclass
from typing import Literal

from tenantzone_contract.report import LatencyReason

TargetName = Literal["token_time", "first_token"]


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """One latency target, and what the zone's requests get; in seconds."""

    target: float
    actual: float | None
    """The 99th percentile of late; None while nothing was served."""
    met: bool | None
    """None while nothing was served."""
    reason: LatencyReason

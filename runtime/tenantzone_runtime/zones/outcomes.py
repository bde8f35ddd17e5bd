"""The outcomes of a zone's latency targets."""

from dataclasses import dataclass
from typing import Literal

from tenantzone_contract.report import LatencyReason

TargetName = Literal["token_time", "first_token"]


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """One latency target, and the zone's actual latency; in seconds."""

    target: float
    actual: float | None
    """The recent 99th percentile; None while no request was served."""
    met: bool | None
    """Whether the target is met; None while no request was served."""
    reason: LatencyReason

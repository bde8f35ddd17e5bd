"""The values that the zones' alerts compare, and the candidate thresholds."""

from dataclasses import dataclass

from hack.monitoring.alerts import zones as zone_alerts
from hack.monitoring.model import Alert
from hack.monitoring.time_scale import REAL_TIME


@dataclass(frozen=True, slots=True)
class Signal:
    """A value that an alert compares with a threshold."""

    alert: str
    what: str
    expression: str
    candidates: tuple[tuple[float, float], ...]
    """Candidate thresholds, each with the minutes for which it must be crossed."""
    falls: bool = False
    """Whether the alert fires below the threshold rather than above it."""


_TAKEN = "tenantzone:zone_taken_blocks:increase5m"
_HELD = "tenantzone:zone_held_blocks:max5m"
_MATTERS = f"and tenantzone:zone_taken:ratio5m > {zone_alerts.TAKEN_OF_CAPACITY}"
_HIT = "tenantzone:zone_hit_ratio:rate5m"
_OLD = "and tenantzone_zone_blocks_in_use offset 1h"

SIGNALS = (
    Signal(
        "TenantZoneEvictionsHigh",
        "taken in 5 minutes, over the most that was held in them",
        f"{_TAKEN} / {_HELD} {_MATTERS}",
        ((1, 0), (1, 5), (2, 0), (2, 5), (3, 0), (3, 5), (4, 5)),
    ),
    Signal(
        "TenantZoneEvictionBurst",
        "taken in 5 minutes, over the mean of the last hour, if it is 1.5 times what was held",
        f"{_TAKEN} / avg_over_time({_TAKEN}[1h] offset 5m) {_MATTERS} and {_TAKEN} / {_HELD} > 1.5 {_OLD}",
        ((1.5, 5), (2, 0), (2, 2), (2, 5), (3, 0), (3, 5), (4, 0)),
    ),
    Signal(
        "TenantZoneReservationNotHeld",
        "reserved blocks that are missing while the zone's next request waits",
        "tenantzone_zone_blocks_short",
        ((0, 0), (0, 0.5), (0, 1)),
    ),
    Signal(
        "TenantZoneStarved",
        "part of 5 minutes in which the zone's next request waited for what others have",
        "tenantzone:zone_stalled:ratio5m",
        ((0.05, 5), (0.1, 0), (0.1, 5), (0.25, 0), (0.25, 5)),
    ),
    Signal(
        "TenantZoneLoansOverdue",
        "blocks in use past the due time of their loan",
        "tenantzone_zone_blocks_overdue",
        ((0, 0), (0, 0.5), (0, 1), (0, 2)),
    ),
    Signal(
        "TenantZoneHitRateCollapsed",
        "hit rate of 5 minutes, over the mean of the last hour where that is above 20 %",
        f"{_HIT} / (avg_over_time({_HIT}[1h] offset 5m) > {zone_alerts.HIT_RATIO_WORTH})"
        f" and tenantzone:zone_queried:ratio5m > {zone_alerts.QUERIED_OF_CAPACITY} {_OLD}",
        ((0.75, 10), (0.5, 0), (0.5, 5), (0.5, 10), (0.33, 5), (0.25, 5)),
        falls=True,
    ),
)


def shipped() -> tuple[Alert, ...]:
    """Returns the shipped alerts."""
    return zone_alerts.zone_alerts(REAL_TIME)

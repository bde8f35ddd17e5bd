"""All rules. ``docs/alerts.md`` says where each threshold comes from."""

from hack.monitoring.manager_alerts import manager_alerts
from hack.monitoring.model import Group
from hack.monitoring.operator_alerts import operator_alerts
from hack.monitoring.pace import REAL_TIME, Pace
from hack.monitoring.recordings import recordings
from hack.monitoring.tier_alerts import tier_alerts
from hack.monitoring.zone_alerts import zone_alerts

EVALUATION_MINUTES = 0.25


def groups(pace: Pace = REAL_TIME) -> tuple[Group, ...]:
    """Recordings first: the alerts use them."""
    interval = pace(EVALUATION_MINUTES)
    return (
        Group("tenantzone-recordings", interval, recordings(pace)),
        Group("tenantzone-zones", interval, zone_alerts(pace)),
        Group("tenantzone-tiers", interval, tier_alerts(pace)),
        Group("tenantzone-manager", interval, manager_alerts(pace)),
        Group("tenantzone-operator", interval, operator_alerts(pace)),
    )

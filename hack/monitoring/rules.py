"""All rules. ``docs/alerts.md`` says where each threshold comes from."""

from hack.monitoring.alerts.manager import manager_alerts
from hack.monitoring.alerts.operator import operator_alerts
from hack.monitoring.alerts.tiers import tier_alerts
from hack.monitoring.alerts.zones import zone_alerts
from hack.monitoring.model import Group
from hack.monitoring.recordings import recordings
from hack.monitoring.time_scale import REAL_TIME, TimeScale

EVALUATION_MINUTES = 0.25


def groups(time_scale: TimeScale = REAL_TIME) -> tuple[Group, ...]:
    """Recordings first: the alerts use them."""
    interval = time_scale(EVALUATION_MINUTES)
    return (
        Group("tenantzone-recordings", interval, recordings(time_scale)),
        Group("tenantzone-zones", interval, zone_alerts(time_scale)),
        Group("tenantzone-tiers", interval, tier_alerts(time_scale)),
        Group("tenantzone-manager", interval, manager_alerts(time_scale)),
        Group("tenantzone-operator", interval, operator_alerts(time_scale)),
    )

"""The panels of the dashboard."""

from hack.monitoring.manager_panels import manager
from hack.monitoring.operator_panels import engines, operator
from hack.monitoring.panel import Row
from hack.monitoring.tier_panels import tiers
from hack.monitoring.zone_panels import blocks, cache, overview, requests, steps


def rows() -> tuple[Row, ...]:
    """Returns all rows, the most important first."""
    return (overview(), blocks(), cache(), requests(), steps(), tiers(), manager(), engines(), operator())

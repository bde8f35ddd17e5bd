"""The panels of the dashboard."""

from hack.monitoring.panels.manager import manager
from hack.monitoring.panels.operator import engines, operator
from hack.monitoring.panels.panel import Row
from hack.monitoring.panels.tiers import tiers
from hack.monitoring.panels.zones import blocks, cache, overview, requests, steps


def rows() -> tuple[Row, ...]:
    """Returns all rows, the most important first."""
    return (overview(), blocks(), cache(), requests(), steps(), tiers(), manager(), engines(), operator())

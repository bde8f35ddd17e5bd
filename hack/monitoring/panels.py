"""What the dashboard shows."""

from monitoring.operator_panels import engines, operator
from monitoring.panel import Row
from monitoring.zone_panels import blocks, cache, overview, requests


def rows() -> tuple[Row, ...]:
    """All of them, from what is looked at first."""
    return (overview(), blocks(), cache(), requests(), engines(), operator())

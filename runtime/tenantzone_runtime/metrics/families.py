"""Collects the declarations of all metrics of the engine.

Names, units and types follow Prometheus' conventions. The number of values of each label is limited: for zones by the
config and the overflow zone, for other labels by fixed sets. ``metrics_levels`` has the number of series per zone.
"""

from typing import Final

from tenantzone_runtime.metrics.engine_families import ENGINE
from tenantzone_runtime.metrics.family import (
    Family,
)
from tenantzone_runtime.metrics.tier_families import TIERS
from tenantzone_runtime.metrics.zone_families import ZONES
from tenantzone_runtime.metrics_levels import DEFAULT_LEVEL, LEVELS, Level

ALL_FAMILIES: Final = (*ENGINE, *ZONES, *TIERS)
"""All metrics of all levels, in the order of a scrape."""

_BY_LEVEL: Final = {level: tuple(family for family in ALL_FAMILIES if level in family.levels) for level in LEVELS}


def families(level: Level = DEFAULT_LEVEL) -> tuple[Family, ...]:
    """Returns the metrics that a scrape of this level includes, in the order of a scrape."""
    return _BY_LEVEL[level]

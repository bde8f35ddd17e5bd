"""The level of detail of a scrape for each zone: low by default, because pools have many engines with many zones.

A family of a higher level may have the same name as one of a lower level, with more labels. At each level, zeros by
label are omitted, so metrics for alerts have an unlabelled total that always exists.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

Level = Literal["basic", "detailed", "full"]
"""basic: what alerts and everyday questions need. detailed: all counters, durations as sum and count. full: the
beneficiaries of evictions, and histograms of durations."""

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
DEFAULT_LEVEL: Final[Level] = "basic"
BASIC: Final[tuple[Level, ...]] = ("basic",)
FROM_DETAILED: Final[tuple[Level, ...]] = ("detailed", "full")
DETAILED: Final[tuple[Level, ...]] = ("detailed",)
FULL: Final[tuple[Level, ...]] = ("full",)

MAX_ZONE_SERIES: Final[Mapping[Level, int]] = MappingProxyType({"basic": 20, "detailed": 160, "full": 209})
"""Maximum number of series of one zone with latency targets and all three tiers, after every counted event has
happened at least once."""

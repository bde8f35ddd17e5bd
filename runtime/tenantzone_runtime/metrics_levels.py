"""The levels of detail of zones' metrics. The default is low, because a pool may have many engines with many zones.

At a higher level, a metric may have more labels than the metric of the same name at a lower level. Series with labels
are omitted while they are 0. So each metric that an alert uses has a total without labels, or series that always exist.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

Level = Literal["basic", "detailed", "full"]
"""``basic`` has the metrics for alerts and everyday questions. ``detailed`` adds all other counters, and the sums and
counts of durations. ``full`` adds the beneficiaries of evictions, and histograms of durations."""

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
DEFAULT_LEVEL: Final[Level] = "basic"
BASIC: Final[tuple[Level, ...]] = ("basic",)
FROM_DETAILED: Final[tuple[Level, ...]] = ("detailed", "full")
DETAILED: Final[tuple[Level, ...]] = ("detailed",)
FULL: Final[tuple[Level, ...]] = ("full",)

MAX_ZONE_SERIES: Final[Mapping[Level, int]] = MappingProxyType({"basic": 20, "detailed": 160, "full": 209})
"""Maximum number of series of one zone, by level. A zone with latency targets and all three tiers has this number after
each counted event has happened at least once."""

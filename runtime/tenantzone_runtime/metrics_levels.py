"""How much a scrape says of each zone: little by default, as pools have many engines, each with up to a thousand zones.

A family of a higher level may have the name of one of a lower level, and more labels. At each level,
zeros by label are left out, so what alerts ask for has a total of its own, which is always there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

Level = Literal["basic", "detailed", "full"]
"""basic: what alerts and everyday questions need. detailed: all that is counted, durations as sum and count. full: whom
evictions were for, and histograms of durations."""

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
DEFAULT_LEVEL: Final[Level] = "basic"
BASIC: Final[tuple[Level, ...]] = ("basic",)
FROM_DETAILED: Final[tuple[Level, ...]] = ("detailed", "full")
DETAILED: Final[tuple[Level, ...]] = ("detailed",)
FULL: Final[tuple[Level, ...]] = ("full",)

MAX_ZONE_SERIES: Final[Mapping[Level, int]] = MappingProxyType({"basic": 20, "detailed": 160, "full": 209})
"""The most series of one zone that has latency targets and all three tiers, and in which all that is counted has
happened."""

"""Names of the eviction policies; ``make policy-names`` writes them from the registry."""

from typing import Final

EVICTION_POLICIES: Final[tuple[str, ...]] = (
    "LRU",
    "Clock",
    "LFU",
)
"""Names of the eviction policies of this version, in the registry's order."""

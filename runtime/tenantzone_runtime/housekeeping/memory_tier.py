"""A memory tier for housekeeping: it exists as long as its engine, and evicted chunks are free immediately."""

from collections.abc import Sequence

from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.zones.tier import Tier


class MemoryTier:
    """The part of a memory tier that is the same for each engine.

    Args:
        tier: the tier with its chunks.
    """

    problem = ""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier

    def take_receipts(self) -> Sequence[Receipt]:
        return ()

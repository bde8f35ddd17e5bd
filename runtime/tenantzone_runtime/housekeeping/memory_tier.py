"""A tier in memory as housekeeping sees it: it is there while its engine is, and what it gives up is free at once."""

from collections.abc import Sequence

from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.zones.tier import Tier


class MemoryTier:
    """The part of a tier in memory that is the same for each engine.

    Args:
        tier: whose chunks it has.
    """

    problem = ""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier

    def take_receipts(self) -> Sequence[Receipt]:
        return ()

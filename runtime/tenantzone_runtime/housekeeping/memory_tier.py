"""A memory tier as seen by housekeeping. It exists as long as its engine, and frees evicted chunks immediately."""

from collections.abc import Sequence

from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.zones.tiers.tier import Tier


class MemoryTier:
    """The implementation of ``ServedTier`` for a memory tier.

    Args:
        tier: the tier with its chunks.
    """

    problem = ""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier

    def take_receipts(self) -> Sequence[Receipt]:
        return ()

"""Adapts a memory tier to housekeeping's interface of tiers."""

from collections.abc import Sequence

from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.zones.tiers.tier import Tier


class MemoryTier:
    """A memory tier as a ``ServedTier``. It frees evicted chunks immediately, so it has no receipts.

    Args:
        tier: the zones' shares of the tier.
    """

    problem = ""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier

    def take_receipts(self) -> Sequence[Receipt]:
        return ()

"""Adds up the zones' reservations in the KV-cache tiers of their pool.

As with blocks, grants stay. If a pool's tier shrinks, no zone loses its reservation, but no zone gets a larger one.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from tenantzone_contract.quantity import shown_bytes
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.config_model import exceeds
from tenantzone_contract.zone_config.share import floor_blocks
from tenantzone_contract.zone_config.tiers import TIER_NAMES, PoolTiers, TierName, TierShare

NO_TIERS: Final = PoolTiers()


@dataclass(frozen=True, slots=True)
class Missing:
    """A reservation that does not fit into its tier."""

    share: TierShare
    bytes: int
    """Number of bytes that the zone reserves."""
    left: int
    size: int
    """Size of the tier in bytes; 0 if the pool has no such tier."""

    def message(self, pool: str) -> str:
        """Returns a text that describes the problem and a fix."""
        tier, wanted = self.share.tier, self.share.reserved
        if not self.size:
            return (
                f"reserved of tier {tier} is {wanted}, but ZonePool {pool} has no such tier; add spec.tiers.{tier} to "
                f"the ZonePool, or remove the tier here"
            )
        asked = f"{wanted}, which is {shown_bytes(self.bytes)}" if isinstance(wanted, str) else shown_bytes(self.bytes)
        return (
            f"reserved of tier {tier} is {asked}, but {shown_bytes(self.left)} of an engine's {shown_bytes(self.size)} "
            f"are left; lower reserved to {self.left} bytes or less, or lower reserved in other zones"
        )


class TierBudget:
    """Adds up the reservations in each tier, in bytes of one engine.

    Args:
        tiers: the tiers of each engine, as the pool declares them.
    """

    def __init__(self, tiers: PoolTiers) -> None:
        self._sizes: dict[TierName, int] = {name: tiers.bytes_of(name) for name in TIER_NAMES}
        self.reserved: Counter[TierName] = Counter()
        """Number of granted bytes, by tier."""

    def allocatable(self, tier: TierName) -> int:
        """Returns the bytes of a tier that can still be reserved."""
        return max(0, self._sizes[tier] - self.reserved[tier])

    def missing(self, entry: ZoneConfig) -> Missing | None:
        """Returns the entry's first reservation that exceeds the remaining bytes of its tier; None if all fit."""
        for share in entry.tiers:
            wanted, left, size = self._bytes(share), self.allocatable(share.tier), self._sizes[share.tier]
            if wanted > left or (not size and share.reserved not in (0, "0%")):
                return Missing(share, wanted, left, size)
        return None

    def asks_for_no_more(self, wanted: ZoneConfig, granted: ZoneConfig) -> bool:
        """Returns whether ``wanted`` reserves at most as much of each tier as ``granted``."""
        known = {share.tier: share for share in granted.tiers}
        return all(
            share.reserved in (0, "0%")
            or (share.tier in known and _is_at_most(share, known[share.tier], self._sizes[share.tier]))
            for share in wanted.tiers
        )

    def take(self, entry: ZoneConfig) -> None:
        """Count the entry's reservations as granted."""
        for share in entry.tiers:
            self.reserved[share.tier] += self._bytes(share)

    def give_back(self, entry: ZoneConfig) -> None:
        for share in entry.tiers:
            self.reserved[share.tier] -= self._bytes(share)

    def _bytes(self, share: TierShare) -> int:
        return floor_blocks(share.reserved, self._sizes[share.tier])


def _is_at_most(share: TierShare, other: TierShare, size: int) -> bool:
    if type(share.reserved) is type(other.reserved):
        return not exceeds(share.reserved, other.reserved)
    # If the pool no longer has the tier, its size is 0, and a percentage can't be compared with a number.
    return size > 0 and floor_blocks(share.reserved, size) <= floor_blocks(other.reserved, size)

"""Eviction: the number of bytes to evict from a group that exceeds its quotas, and the choice of blocks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenantzone_manager.core.books import group_chain, instance_account
from tenantzone_manager.core.quota import UNLIMITED, Account
from tenantzone_manager.core.settings import InstanceGroup, Quota


@dataclass(frozen=True, slots=True)
class Removed:
    """The number of removed blocks, and their size in bytes."""

    blocks: int = 0
    bytes: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.blocks + other.blocks, self.bytes + other.bytes)


@dataclass(slots=True)
class Reclaimed:
    """The result of one pass of the reclaimer."""

    expired: int = 0
    """Number of locations whose writer was presumed dead."""
    deleted: int = 0
    """Number of locations whose bytes were deleted."""
    evicted_of: dict[str, Removed] = field(default_factory=dict)
    """Evicted blocks and bytes, by group."""
    failed: int = 0
    """Number of locations whose storage failed to delete them. The reclaimer retries these deletions."""

    @property
    def evicted(self) -> Removed:
        """Evicted blocks and bytes of all groups."""
        return sum(self.evicted_of.values(), Removed())

    def note_evicted(self, group: str, removed: Removed) -> None:
        """Add evicted blocks and bytes of a group."""
        if removed.blocks:
            self.evicted_of[group] = self.evicted_of.get(group, Removed()) + removed


@dataclass(frozen=True, slots=True)
class Candidate:
    """An evictable block, that is, the last block of a prefix."""

    score: float
    """The block's score in its instance's rank. Blocks with lower scores are evicted first."""
    instance: str
    key: bytes
    size: int
    """Bytes of the locations that an eviction would delete."""


def surplus(account: Account, quota: Quota, can_move: bool = False) -> int:
    """Returns the number of bytes to evict from an account; 0 if the quota has no limit.

    Bytes are evicted if they exceed the watermark, or if they leave too little room for the reservations of other
    instances. Only live bytes count, because all other bytes are already being deleted. If blocks can move to a lower
    type, eviction begins only halfway between the watermark and the limit.
    """
    if quota.limit is None:
        return 0
    target = quota.limit if quota.watermark is None else int(quota.limit * quota.watermark)
    if can_move:
        target += (quota.limit - target) // 2
    broken_promises = account.committed - account.deleting - quota.limit
    return max(0, account.live - target if quota.watermark is not None else 0, broken_promises)


def group_surplus(group: InstanceGroup, types: Iterable[str], accounts: Mapping[str, Account]) -> dict[str, int]:
    """Returns the number of bytes to evict from a group, by storage type."""
    over = {}
    for where in types:
        account = accounts.get(group_chain(group.name, where)[0], Account())
        if bytes_over := surplus(account, group.types.get(where, Quota())):
            over[where] = bytes_over
    return over


def may_go(instances: Iterable[str], where: str, accounts: Mapping[str, Account]) -> dict[str, int]:
    """Returns how many bytes of each instance are evictable in a storage type: its live bytes above its reservation."""
    own = {name: accounts.get(instance_account(name, where), Account()) for name in instances}
    return {name: account.live - account.reserved for name, account in own.items() if account.live > account.reserved}


def over_own_limit(account: Account) -> int:
    """Returns the number of live bytes above an instance's own limit, which may have been lowered."""
    return 0 if account.limit == UNLIMITED else max(0, account.live - account.limit)


def choose(candidates: Iterable[Candidate], need: int, allowed: Mapping[str, int]) -> list[Candidate]:
    """Returns the blocks to evict, lowest scores first, until their sizes add up to ``need`` bytes.

    Args:
        candidates: the evictable blocks.
        need: number of bytes to evict.
        allowed: maximum number of bytes to evict, by instance.
    """
    left = dict(allowed)
    chosen = []
    for candidate in sorted(candidates, key=lambda each: (each.score, each.instance, each.key)):
        if need <= 0:
            break
        if candidate.size <= left.get(candidate.instance, 0):
            left[candidate.instance] -= candidate.size
            need -= candidate.size
            chosen.append(candidate)
    return chosen

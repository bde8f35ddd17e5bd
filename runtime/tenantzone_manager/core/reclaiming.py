"""How much to evict when a group uses more than it should, and which blocks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenantzone_manager.core.books import group_chain, instance_account
from tenantzone_manager.core.quota import UNLIMITED, Account
from tenantzone_manager.core.settings import InstanceGroup, Quota


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks that ceased to serve, and their bytes."""

    blocks: int = 0
    bytes: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.blocks + other.blocks, self.bytes + other.bytes)


@dataclass(slots=True)
class Reclaimed:
    """The result of one pass."""

    expired: int = 0
    """Locations whose writer was presumed dead."""
    deleted: int = 0
    """Locations whose bytes were deleted."""
    evicted_of: dict[str, Removed] = field(default_factory=dict)
    """Evicted blocks and bytes, by group."""
    failed: int = 0
    """Locations that their storage did not delete; the deletion is retried."""

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
    """A block at the end of a prefix, from its instance's rank."""

    score: float
    """The block with the lowest score is evicted first."""
    instance: str
    key: bytes
    size: int
    """Bytes of the locations that would be deleted."""


def surplus(account: Account, quota: Quota, can_move: bool = False) -> int:
    """Returns the bytes to evict: those above the watermark, or those reserved for others; 0 without a limit.

    Only live bytes count; the others are being deleted already. If blocks can move down, eviction starts only halfway
    between the watermark and the limit.
    """
    if quota.limit is None:
        return 0
    target = quota.limit if quota.watermark is None else int(quota.limit * quota.watermark)
    if can_move:
        target += (quota.limit - target) // 2
    broken_promises = account.committed - account.deleting - quota.limit
    return max(0, account.live - target if quota.watermark is not None else 0, broken_promises)


def group_surplus(group: InstanceGroup, types: Iterable[str], accounts: Mapping[str, Account]) -> dict[str, int]:
    """Returns the bytes to evict, by storage type."""
    over = {}
    for where in types:
        account = accounts.get(group_chain(group.name, where)[0], Account())
        if bytes_over := surplus(account, group.types.get(where, Quota())):
            over[where] = bytes_over
    return over


def may_go(instances: Iterable[str], where: str, accounts: Mapping[str, Account]) -> dict[str, int]:
    """Returns the bytes that may be evicted from a storage type, by instance: live bytes above the reservation."""
    own = {name: accounts.get(instance_account(name, where), Account()) for name in instances}
    return {name: account.live - account.reserved for name, account in own.items() if account.live > account.reserved}


def over_own_limit(account: Account) -> int:
    """Returns the bytes that an instance uses above its own limit, after the limit was lowered."""
    return 0 if account.limit == UNLIMITED else max(0, account.live - account.limit)


def choose(candidates: Iterable[Candidate], need: int, allowed: Mapping[str, int]) -> list[Candidate]:
    """Returns the first candidates that together have ``need`` bytes, at most ``allowed`` bytes of each instance."""
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

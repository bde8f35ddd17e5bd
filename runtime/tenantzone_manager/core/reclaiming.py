"""Who goes when a group uses more than it should: how much, and which blocks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenantzone_manager.core.books import group_chain, instance_account
from tenantzone_manager.core.quota import UNLIMITED, Account
from tenantzone_manager.core.settings import InstanceGroup, Quota


@dataclass(frozen=True, slots=True)
class Removed:
    """What ceased to serve."""

    blocks: int = 0
    bytes: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.blocks + other.blocks, self.bytes + other.bytes)


@dataclass(slots=True)
class Reclaimed:
    """What one pass did."""

    expired: int = 0
    """Locations whose writer was taken for dead."""
    deleted: int = 0
    """Locations whose bytes are gone."""
    deleted_bytes: int = 0
    evicted_of: dict[str, Removed] = field(default_factory=dict)
    """By group, what ceased to serve."""
    failed: int = 0
    """Locations whose storage did not delete them; they are tried again."""

    @property
    def evicted(self) -> Removed:
        """What ceased to serve, of all groups."""
        return sum(self.evicted_of.values(), Removed())

    def note_evicted(self, group: str, removed: Removed) -> None:
        """Note what ceased to serve of a group."""
        if removed.blocks:
            self.evicted_of[group] = self.evicted_of.get(group, Removed()) + removed


@dataclass(frozen=True, slots=True)
class Candidate:
    """A block at the end of a prefix, as its instance's rank has it."""

    score: float
    """The smallest goes first."""
    instance: str
    key: bytes
    size: int
    """Bytes of its locations that would go."""


def surplus(account: Account, quota: Quota, can_move: bool = False) -> int:
    """Bytes that have to go: above the watermark, or of what is promised to others; 0 where nothing limits.

    Only what is alive counts; the rest is on its way already. What can move down has the first half of what lies
    between the watermark and the limit for that, and goes beyond it.
    """
    if quota.limit is None:
        return 0
    target = quota.limit if quota.watermark is None else int(quota.limit * quota.watermark)
    if can_move:
        target += (quota.limit - target) // 2
    broken_promises = account.committed - account.deleting - quota.limit
    return max(0, account.live - target if quota.watermark is not None else 0, broken_promises)


def group_surplus(group: InstanceGroup, types: Iterable[str], accounts: Mapping[str, Account]) -> dict[str, int]:
    """By storage type, the bytes that have to go there."""
    over = {}
    for where in types:
        account = accounts.get(group_chain(group.name, where)[0], Account())
        if bytes_over := surplus(account, group.types.get(where, Quota())):
            over[where] = bytes_over
    return over


def may_go(instances: Iterable[str], where: str, accounts: Mapping[str, Account]) -> dict[str, int]:
    """By instance, the bytes that may be evicted of a storage type: what is alive above what it is promised."""
    own = {name: accounts.get(instance_account(name, where), Account()) for name in instances}
    return {name: account.live - account.reserved for name, account in own.items() if account.live > account.reserved}


def over_own_limit(account: Account) -> int:
    """Bytes that an instance has above its own limit, which was lowered."""
    return 0 if account.limit == UNLIMITED else max(0, account.live - account.limit)


def choose(candidates: Iterable[Candidate], need: int, allowed: Mapping[str, int]) -> list[Candidate]:
    """The first that together are as large as needed, none of which takes an instance below what it is promised."""
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

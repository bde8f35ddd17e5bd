"""Accounts and ranks, which the index updates in each commit that changes a block's record.

An account counts the bytes of a location from the beginning of the write until the location is removed from the record.
A rank is a sorted set of blocks, so that due locations and evictable blocks are found without reading all records.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tenantzone_manager.core.heat import frequency
from tenantzone_manager.core.quota import Charge
from tenantzone_manager.core.records import Block, CacheLocation, State

WRITING: Final = "writing"
"""Kind of the ranks of locations that are being written, sorted by the time at which the writer is presumed dead."""
DELETING: Final = "deleting"
"""Kind of the ranks of locations to delete, sorted by the time after which no reader uses them."""
ENDS: Final = "ends"
"""Kind of the ranks of blocks that may be evicted from a storage type, sorted by the time of last use (LRU)."""
FEWEST: Final = "fewest"
"""Kind of the ranks that contain the same blocks as the ``ENDS`` ranks, sorted by the frequency of use (LFU)."""
BORDER: Final = "border"
"""Kind of the ranks of blocks without a live child block in one storage type, but with one in another type.

Such a block can't be evicted from the first type, but it may be moved to another type.
"""


DROPPED: Final = "dropped"
"""Name of an account without bytes. Its ``deleting`` counts the corrupt records dropped since the last recount."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The instance and group that blocks belong to."""

    instance: str
    group: str


@dataclass(frozen=True, slots=True)
class RankChange:
    """A change of a member's score in a rank.

    A score of None means that the rank does not contain the member. There is one exception: if both scores are None,
    the member is removed, whatever its current score is.
    """

    rank: str
    member: bytes
    before: float | None
    score: float | None


def chain(owner: Owner, storage_type: str) -> tuple[str, ...]:
    """Returns a chain of three account names, from the bottom up.

    They count the instance's bytes in the storage type, its group's bytes in this type, and all bytes of the group.
    """
    return (instance_account(owner.instance, storage_type), *group_chain(owner.group, storage_type))


@lru_cache(maxsize=4096)
def _accounts(owner: Owner, storage_type: str, storage: str) -> tuple[tuple[str, ...], ...]:
    """Returns the chains of accounts to which bytes in a storage are charged.

    The result is cached, because it is the same for all blocks of a write.
    """
    return chain(owner, storage_type), (storage_account(storage),)


def instance_account(instance: str, storage_type: str) -> str:
    """Returns the name of an instance's account in a storage type."""
    return f"i/{instance}/{storage_type}"


def chain_until_claimed(group: str, zone: str, storage_type: str) -> tuple[str, ...]:
    """Returns the chain of accounts that hold a zone's reservation in a storage type until the zone has instances."""
    return (f"z/{group}/{zone}/{storage_type}", *group_chain(group, storage_type))


def group_chain(group: str, storage_type: str) -> tuple[str, str]:
    """Returns the names of a group's account for a storage type, and of its account for all types together."""
    return f"g/{group}/{storage_type}", f"g/{group}"


def storage_account(storage: str) -> str:
    """Returns the name of a storage's account."""
    return f"s/{storage}"


def queue(kind: str, group: str) -> str:
    """Returns the name of a group's rank of locations.

    Args:
        kind: ``WRITING`` or ``DELETING``.
        group: name of the group.
    """
    return f"{kind}/{group}"


def ends(kind: str, instance: str, storage_type: str) -> str:
    """Returns the name of an instance's rank of blocks in a storage type.

    Args:
        kind: ``ENDS``, ``FEWEST`` or ``BORDER``.
        instance: name of the instance.
        storage_type: name of the storage type.
    """
    return f"{kind}/{instance}/{storage_type}"


def member(instance: str, key: bytes) -> bytes:
    """Returns the member that stands for a block in a rank of its group: the instance's name and the block's key."""
    return instance.encode() + b"\0" + key


def of_member(name: bytes) -> tuple[str, bytes]:
    """Returns the instance and the key of the block that a member of a group's rank stands for."""
    instance, _, key = name.partition(b"\0")
    return instance.decode(), key


def charges(owner: Owner, before: Block | None, after: Block | None) -> list[Charge]:
    """Returns the bytes that a change of a block's record charges or releases, by account."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for block, sign in ((before, -1), (after, 1)):
        for location in block.locations if block else ():
            place = location.type, location.storage
            size = sign * location.size
            used, deleting = sums.get(place, (0, 0))
            sums[place] = used + size, deleting + (0 if location.is_live else size)
    return [
        Charge(accounts, *both)
        for (where, storage), both in sums.items()
        if any(both)
        for accounts in _accounts(owner, where, storage)
    ]


def rank_changes(owner: Owner, key: bytes, before: Block | None, after: Block | None) -> list[RankChange]:
    """Returns the changes of scores in ranks that result from a change of a block's record."""
    was, now = _ranks(owner, key, before), _ranks(owner, key, after)
    places = was | now
    return [RankChange(*at, was.get(at), now.get(at)) for at in places if was.get(at) != now.get(at)]


def without_ranks(owner: Owner, key: bytes, types: Iterable[str]) -> list[RankChange]:
    """Returns the changes that remove a block from all ranks that may contain it.

    Args:
        owner: owner of the block.
        key: key of the block.
        types: names of all storage types.
    """
    due = [(queue(kind, owner.group), member(owner.instance, key)) for kind in (WRITING, DELETING)]
    kinds = (ENDS, FEWEST, BORDER)
    last = [(ends(kind, owner.instance, storage_type), key) for kind in kinds for storage_type in types]
    return [RankChange(*at, None, None) for at in (*due, *last)]


def _ranks(owner: Owner, key: bytes, block: Block | None) -> dict[tuple[str, bytes], float]:
    if block is None:
        return {}
    ranks: dict[tuple[str, bytes], float] = {}
    for location in block.locations:
        if location.state is State.SERVING:
            where = location.type
            if block.evictable_from(where):
                ranks[ends(ENDS, owner.instance, where), key] = block.used_at
                ranks[ends(FEWEST, owner.instance, where), key] = frequency(block)
            elif block.is_last_in(where):
                ranks[ends(BORDER, owner.instance, where), key] = block.used_at
        else:
            kind = WRITING if location.state is State.WRITING else DELETING
            at = queue(kind, owner.group), member(owner.instance, key)
            ranks[at] = min(location.until, ranks.get(at, location.until))
    return ranks


def locations_due(block: Block, state: State, now: float) -> list[CacheLocation]:
    """Returns the locations of a block that have this state and whose ``until`` is not after ``now``."""
    return [location for location in block.locations if location.state is state and location.until <= now]

"""What the index notes beside records: it follows from a record before and after a change, and from nothing else.

So bytes are reserved in the moment in which a location becomes ``writing``, and given back in the moment in which its
record goes; and whatever is due or may be evicted is found without looking at all records.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tenantzone_manager.core.heat import frequency
from tenantzone_manager.core.quota import Charge
from tenantzone_manager.core.records import Block, CacheLocation, State

WRITING: Final = "writing"
"""The rank of writes, by when their writers are taken for dead."""
DELETING: Final = "deleting"
"""The rank of locations on their way out, by when no reader is left."""
ENDS: Final = "ends"
"""The ranks of blocks that may be evicted from a storage type, by when they were last used."""
FEWEST: Final = "fewest"
"""... and by how often, as LFU orders them."""
BORDER: Final = "border"
"""... of blocks that may not be, only because blocks after them serve in another type. They may move there."""


DROPPED: Final = "dropped"
"""The account whose ``deleting`` is the number of records that were dropped unread since the last recount."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose blocks they are."""

    instance: str
    group: str


@dataclass(frozen=True, slots=True)
class RankChange:
    """A member of a sorted set goes from one score to another; None: it is not in the set.

    With neither score it goes, whatever its score is.
    """

    rank: str
    member: bytes
    before: float | None
    score: float | None


def chain(owner: Owner, storage_type: str) -> tuple[str, ...]:
    """The accounts of an instance in a storage type: its own, its group's there, and its group's."""
    return (instance_account(owner.instance, storage_type), *group_chain(owner.group, storage_type))


@lru_cache(maxsize=4096)
def _accounts(owner: Owner, storage_type: str, storage: str) -> tuple[tuple[str, ...], ...]:
    """The chains of accounts that bytes in a storage are charged to: the same for all blocks of a write."""
    return chain(owner, storage_type), (storage_account(storage),)


def instance_account(instance: str, storage_type: str) -> str:
    """The name of the account."""
    return f"i/{instance}/{storage_type}"


def chain_until_claimed(group: str, zone: str, storage_type: str) -> tuple[str, ...]:
    """The accounts that keep what a zone without instances is promised in a storage type."""
    return (f"z/{group}/{zone}/{storage_type}", *group_chain(group, storage_type))


def group_chain(group: str, storage_type: str) -> tuple[str, str]:
    """The names of a group's accounts: in a storage type, and in all."""
    return f"g/{group}/{storage_type}", f"g/{group}"


def storage_account(storage: str) -> str:
    """The name of the account."""
    return f"s/{storage}"


def queue(kind: str, group: str) -> str:
    """The name of a group's rank of what is due."""
    return f"{kind}/{group}"


def ends(kind: str, instance: str, storage_type: str) -> str:
    """The name of an instance's rank of what may be evicted, or may move."""
    return f"{kind}/{instance}/{storage_type}"


def member(instance: str, key: bytes) -> bytes:
    """A block among those of all instances of its group."""
    return instance.encode() + b"\0" + key


def of_member(name: bytes) -> tuple[str, bytes]:
    """Instance and key of a member."""
    instance, _, key = name.partition(b"\0")
    return instance.decode(), key


def charges(owner: Owner, before: Block | None, after: Block | None) -> list[Charge]:
    """What a change costs or gives back, by account."""
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
    """How a change moves a block in the ranks."""
    was, now = _ranks(owner, key, before), _ranks(owner, key, after)
    places = was | now
    return [RankChange(*at, was.get(at), now.get(at)) for at in places if was.get(at) != now.get(at)]


def without_ranks(owner: Owner, key: bytes, types: Iterable[str]) -> list[RankChange]:
    """Takes a block out of all ranks in which it may be.

    Args:
        owner: of the block.
        key: of the block.
        types: all storage types.
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
    """Which of a block's locations in a state are due."""
    return [location for location in block.locations if location.state is state and location.until <= now]

"""Blocks move between storage types: into which there is room, and how a copy comes to serve and what it replaces goes.

A copy is a write whose writer is the manager. It serves only if what it was made of still does, so what is removed
meanwhile stays removed; and a location goes for a copy only while the copy serves, so a move leaves no hole.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from tenantzone_manager.core.books import Owner, chain, storage_account
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.placement import Candidate, bytes_that_fit
from tenantzone_manager.core.quota import Account
from tenantzone_manager.core.records import Block, CacheLocation, State
from tenantzone_manager.core.settings import InstanceGroup, Quota, Storage
from tenantzone_manager.core.writing import Ending, finish, leave

Direction = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Rung:
    """The storages of one type among a group's: between them nothing moves."""

    type: str
    storages: tuple[Storage, ...]
    """The first choice first."""


@dataclass(slots=True)
class Moved:
    """What one pass did."""

    blocks: Counter[Direction] = field(default_factory=Counter)
    """That got a location in a higher type, or gave theirs up for one in a lower type."""
    bytes: Counter[Direction] = field(default_factory=Counter)
    """That were copied for it."""
    failed: Counter[str] = field(default_factory=Counter)
    """Blocks that were to be copied and were not, by why: ``read``, ``write``, ``size``, ``late``, ``gone``."""

    def note(self, to: Direction, blocks: Sequence[object]) -> None:
        """Note blocks that are where they were to go."""
        if blocks:
            self.blocks[to] += len(blocks)

    def note_copied(self, to: Direction, size: int) -> None:
        """Note bytes that were copied for it."""
        if size:
            self.bytes[to] += size


def ladder(storages: Iterable[Storage]) -> list[Rung]:
    """Storages by type, in the order in which the types come first: the highest first."""
    by_type: dict[str, list[Storage]] = {}
    for storage in storages:
        by_type.setdefault(storage.type, []).append(storage)
    return [Rung(where, tuple(some)) for where, some in by_type.items()]


def best_location(block: Block, rungs: Sequence[Rung]) -> tuple[int, CacheLocation] | None:
    """Which of the rungs is the highest that a block can be read on, and where there; None: on none."""
    for height, rung in enumerate(rungs):
        names = {storage.name for storage in rung.storages}
        for location in block.serving():
            if location.storage in names:
                return height, location
    return None


def accounts_of(owner: Owner, storage: Storage) -> list[str]:
    """The names of the accounts that ``room`` looks at."""
    return [*chain(owner, storage.type), storage_account(storage.name)]


def room(owner: Owner, storage: Storage, group: InstanceGroup, accounts: Mapping[str, Account]) -> int | None:
    """Bytes that may be copied into a storage so that nothing is evicted there for them; None: any number.

    It is what the quotas leave, and no more than what the watermarks of the type and of the storage do. The group's
    total has to have room for as long as a block lies in both.

    Args:
        owner: whose.
        storage: where.
        group: with its quotas.
        accounts: those of ``accounts_of``, as they are now.
    """
    of_type = accounts.get(chain(owner, storage.type)[1], Account())
    of_storage = accounts.get(storage_account(storage.name), Account())
    rooms = (
        bytes_that_fit(owner, Candidate(storage.name, storage.type), accounts),
        below_watermark(of_type, group.types.get(storage.type, Quota())),
        below_watermark(of_storage, Quota(storage.limit, storage.watermark)),
    )
    return min((each for each in rooms if each is not None), default=None)


def below_watermark(account: Account, quota: Quota) -> int | None:
    """Bytes that an account may still have alive without one being evicted for it; None: any number."""
    if quota.limit is None:
        return None
    target = quota.limit if quota.watermark is None else int(quota.limit * quota.watermark)
    return max(0, target - account.live)


def that_fit(sizes: Sequence[int], bytes_left: int | None) -> int:
    """How many of these, from the first on, have room together."""
    if bytes_left is None:
        return len(sizes)
    for count, size in enumerate(sizes):
        bytes_left -= size
        if bytes_left < 0:
            return count
    return len(sizes)


def may_be_copied(block: Block | None, source: str, storage_type: str) -> bool:
    """Whether a block still serves at a location, and nothing of it lies in a type or is being written."""
    if block is None or not _serves(block, source):
        return False
    return not any(
        each.state is State.WRITING or (each.is_live and each.type == storage_type) for each in block.locations
    )


def begin_copy(draft: Draft, key: bytes, copy: CacheLocation) -> None:
    """Have a block be copied to a location. That is no use of it."""
    block = draft.get(key)
    if block is not None:
        draft.put(key, replace(block, locations=(*block.locations, copy)))


def end_copy(draft: Draft, key: bytes, source: str, copy: str, is_whole: bool, due: float) -> Ending:
    """Have a copy serve, if it is whole and its source still does; else it goes.

    Args:
        draft: has the block and its parent.
        key: of the block.
        source: id of the location that was read.
        copy: id of the one that was written.
        is_whole: whether all of it was.
        due: from when on nobody can be at one that goes.
    """
    block = draft.get(key)
    return finish(draft, key, copy, is_whole and block is not None and _serves(block, source), due)


def leave_for_others(
    draft: Draft, key: bytes, location_id: str, is_usable: Callable[[CacheLocation], bool], due: float
) -> bool:
    """Have a location go if the block serves at another one that is usable; returns whether it goes.

    Args:
        draft: has the block and its parent.
        key: of the block.
        location_id: of the location.
        is_usable: whether a location can be read.
        due: from when on no reader can be left.
    """
    block = draft.get(key)
    if block is None or not any(each.id != location_id and is_usable(each) for each in block.serving()):
        return False
    return bool(leave(draft, key, lambda each: each.id == location_id and each.state is State.SERVING, due))


def _serves(block: Block, location_id: str) -> bool:
    return any(location.id == location_id for location in block.serving())

"""Moves of blocks between storage types: room at the target, the start and end of a copy, and removal of the source.

A copy is a write by the manager. A complete copy becomes readable only if its source is still readable, so a block that
was removed during the copy stays removed. The source is removed only while the copy is readable, so the block can be
read during the whole move.
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
    """A group's storages of one type. Blocks do not move between storages of the same type."""

    type: str
    storages: tuple[Storage, ...]
    """The storages in order of preference."""


@dataclass(slots=True)
class Moved:
    """The result of one pass of the mover."""

    blocks: Counter[Direction] = field(default_factory=Counter)
    """Number of blocks that were copied to a higher storage type, or moved to a lower type."""
    bytes: Counter[Direction] = field(default_factory=Counter)
    """Number of bytes copied for these moves."""
    failed: Counter[str] = field(default_factory=Counter)
    """Number of blocks that could not be copied, by reason: ``read``, ``write``, ``size``, ``late``, ``gone``."""

    def note(self, to: Direction, blocks: Sequence[object]) -> None:
        """Count blocks that have been moved."""
        if blocks:
            self.blocks[to] += len(blocks)

    def note_copied(self, to: Direction, size: int) -> None:
        """Count bytes that were copied for moves."""
        if size:
            self.bytes[to] += size


def ladder(storages: Iterable[Storage]) -> list[Rung]:
    """Returns the storages grouped by type, in the order in which the types first appear, that is, highest first."""
    by_type: dict[str, list[Storage]] = {}
    for storage in storages:
        by_type.setdefault(storage.type, []).append(storage)
    return [Rung(where, tuple(some)) for where, some in by_type.items()]


def best_location(block: Block, rungs: Sequence[Rung]) -> tuple[int, CacheLocation] | None:
    """Returns the index of the highest rung where a block can be read, and the block's location in that rung.

    Returns None if the block can't be read at any rung.
    """
    for height, rung in enumerate(rungs):
        names = {storage.name for storage in rung.storages}
        for location in block.serving():
            if location.storage in names:
                return height, location
    return None


def accounts_of(owner: Owner, storage: Storage) -> list[str]:
    """Returns the names of the accounts that :func:`room` needs."""
    return [*chain(owner, storage.type), storage_account(storage.name)]


def room(owner: Owner, storage: Storage, group: InstanceGroup, accounts: Mapping[str, Account]) -> int | None:
    """Returns how many bytes may be copied into a storage without causing evictions there; None means no limit.

    The result respects the quotas and watermarks of the storage type and of the storage, and the limit of the group's
    total. During the move, both locations of a block count towards the total.

    Args:
        owner: owner of the blocks.
        storage: target of the copy.
        group: the group, with its quotas.
        accounts: the current accounts with the names that ``accounts_of`` returns.
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
    """Returns how many live bytes may be added to an account without causing evictions; None means no limit."""
    if quota.limit is None:
        return None
    target = quota.limit if quota.watermark is None else int(quota.limit * quota.watermark)
    return max(0, target - account.live)


def that_fit(sizes: Sequence[int], bytes_left: int | None) -> int:
    """Returns how many blocks from the start of the list fit into ``bytes_left``. None means that all blocks fit."""
    if bytes_left is None:
        return len(sizes)
    for count, size in enumerate(sizes):
        bytes_left -= size
        if bytes_left < 0:
            return count
    return len(sizes)


def may_be_copied(block: Block | None, source: str, storage_type: str) -> bool:
    """Returns whether a block may be copied to a storage type.

    The block must still be readable at the location with the id ``source``. The block must not have a live location in
    the target type, and must not be in the middle of a write at any location.
    """
    if block is None or not _serves(block, source):
        return False
    return not any(
        each.state is State.WRITING or (each.is_live and each.type == storage_type) for each in block.locations
    )


def begin_copy(draft: Draft, key: bytes, copy: CacheLocation) -> None:
    """Add the location of a copy to a block, without counting this as a use of the block."""
    block = draft.get(key)
    if block is not None:
        draft.put(key, replace(block, locations=(*block.locations, copy)))


def end_copy(draft: Draft, key: bytes, source: str, copy: str, is_whole: bool, due: float) -> Ending:
    """End a copy. It becomes readable if it is complete and its source is still readable; otherwise, it is deleted.

    Args:
        draft: contains the block and its parent.
        key: key of the block.
        source: id of the location that was read.
        copy: id of the location that was written.
        is_whole: whether all bytes of the copy were written.
        due: Unix time after which no reader or writer can use a deleted location.
    """
    block = draft.get(key)
    return finish(draft, key, copy, is_whole and block is not None and _serves(block, source), due)


def leave_for_others(
    draft: Draft, key: bytes, location_id: str, is_usable: Callable[[CacheLocation], bool], due: float
) -> bool:
    """Mark a location for deletion if the block can also be read elsewhere. Returns whether the location was marked.

    Args:
        draft: contains the block and its parent.
        key: key of the block.
        location_id: id of the location to delete.
        is_usable: returns whether a location can be read.
        due: Unix time after which no reader can use the deleted location.
    """
    block = draft.get(key)
    if block is None or not any(each.id != location_id and is_usable(each) for each in block.serving()):
        return False
    return bool(leave(draft, key, lambda each: each.id == location_id and each.state is State.SERVING, due))


def _serves(block: Block, location_id: str) -> bool:
    return any(location.id == location_id for location in block.serving())

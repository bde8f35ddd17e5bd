"""The life of locations: two-phase writes, service and deletion."""

import enum
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from tenantzone_manager.core import heat
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.records import Block, CacheLocation, State


class WriteStatus(enum.StrEnum):
    """A block's write status for a caller that wants to write it."""

    WRITE = "write"
    """The caller writes it, at the location that it is given."""
    SERVING = "serving"
    """The block exists already."""
    WRITING = "writing"
    """Another writer is writing it."""
    NO_PREFIX = "no_prefix"
    """A block before it is missing, so it would be useless."""
    NO_ROOM = "no_room"
    """No storage has room for it within the quotas."""


class Ending(enum.StrEnum):
    """The state of a location after its writer has finished."""

    SERVING = "serving"
    FAILED = "failed"
    """Its writer reported a failure."""
    EXPIRED = "expired"
    """The writer can no longer finish it: it took too long, or the block was removed."""


def write_statuses(
    blocks: Sequence[Block | None],
    parents: Sequence[int],
    first: int,
    needs_prefix: bool,
    can_read: Callable[[str], bool],
    parts: Mapping[int, frozenset[str]],
) -> Iterator[WriteStatus]:
    """Yields the write status of each block.

    Args:
        blocks: the current records.
        parents: for each block, the index of the previous block of its prompt, which is lower; negative: none.
        first: index of the first block that the writer has; the blocks before it are only named.
        needs_prefix: whether a block is useless without all blocks before it.
        can_read: whether a storage can be read now. An unreadable block that the writer has is written again; one that
            it does not have counts as present for the blocks after it, because its storage will return.
        parts: for each block that the writer has, the names of the parts that it would write.
    """
    is_whole: list[bool] = []
    for index, (block, parent) in enumerate(zip(blocks, parents, strict=True)):
        follows = parent < 0 or is_whole[parent]
        status = (
            write_status_of(block, can_read, parts[index])
            if index >= first
            else write_status_of(block, _any, _NO_PARTS)
        )
        if status is WriteStatus.WRITE and (index < first or not follows):
            status = WriteStatus.NO_PREFIX
        is_whole.append(follows and (status is not WriteStatus.NO_PREFIX or not needs_prefix))
        yield status


def parents_of(count: int, given: Sequence[int]) -> Sequence[int]:
    """Returns, for each block of a write, the index of the previous block of its prompt.

    Args:
        count: number of blocks.
        given: the caller's indices; empty: each block follows the one named before it.

    Raises:
        ValueError: the indices do not fit ``count`` blocks.
    """
    if not given:
        return range(-1, count - 1)
    if len(given) != count:
        raise ValueError(f"{len(given)} parents do not fit {count} blocks")
    for index, parent in enumerate(given):
        if not -1 <= parent < index:
            raise ValueError(f"block {index} can't follow block {parent}: name that one before it, or -1 for none")
    return given


def depths_of(parents: Sequence[int]) -> list[int]:
    """Returns, for each block, the number of blocks before it in its prompt."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


_NO_PARTS: Final[frozenset[str]] = frozenset()
_ATTEMPT: Final = "_"


def _any(_: str) -> bool:
    return True


def write_status_of(block: Block | None, can_read: Callable[[str], bool], parts: frozenset[str]) -> WriteStatus:
    """Returns the write status of a block for a writer that has all blocks before it.

    Args:
        block: the current record.
        can_read: whether a storage can be read now.
        parts: names of the parts that the writer would write. A location that lacks one of them does not count.
    """
    locations = [each for each in block.locations if each.has(parts)] if block else ()
    states = {each.state for each in locations if each.state is not State.SERVING or can_read(each.storage)}
    if State.SERVING in states:
        return WriteStatus.SERVING
    return WriteStatus.WRITING if State.WRITING in states else WriteStatus.WRITE


def begin(draft: Draft, key: bytes, parent: bytes, depth: int, location: CacheLocation, now: float) -> None:
    """Begin the write of a block at a location.

    Args:
        draft: contains the block and its parent.
        key: key of the block.
        parent: key of the previous block; empty: none.
        depth: number of blocks before it.
        location: the new location.
        now: current Unix time.
    """
    block = draft.get(key)
    if block is None:
        known = parent if parent and draft.get(parent) is not None else b""
        block = Block(known, depth, now)
    draft.put(key, replace(heat.used(block, now, 0), locations=(*block.locations, location)))


def finish(draft: Draft, key: bytes, write_id: str, written: bool, due: float) -> Ending:
    """End a write: the location serves from now on, or is deleted.

    It replaces locations of the same storage type that have only some of its parts; one with more parts replaces it.

    Args:
        draft: contains the block and its parent.
        key: key of the block.
        write_id: id of the write.
        written: whether all of its bytes are stored.
        due: Unix time until which a failed location's writer, or a replaced location's reader, may still use it.
    """
    block = draft.get(key)
    location = location_of(block, write_id)
    if block is None or location is None:
        return Ending.EXPIRED
    names = location.part_names
    others = [other for other in block.serving() if other.type == location.type]
    is_replaced = any(names < other.part_names for other in others)
    if location.state is not State.WRITING:
        # A caller that lost the answer repeats the call, and gets the same answer.
        is_served = written and (location.state is State.SERVING or is_replaced)
        return Ending.SERVING if is_served else Ending.EXPIRED
    if not written or is_replaced:
        _put(draft, key, block, {location.id: replace(location, state=State.DELETING, until=due)})
        return Ending.SERVING if written else Ending.FAILED
    changed = {
        other.id: replace(other, state=State.DELETING, until=due) for other in others if other.part_names < names
    }
    _put(draft, key, block, {location.id: replace(location, state=State.SERVING, until=0.0), **changed})
    return Ending.SERVING


def leave(draft: Draft, key: bytes, goes: Callable[[CacheLocation], bool], due: float) -> list[CacheLocation]:
    """Mark live locations of a block for deletion; returns them.

    Args:
        draft: contains the block and its parent.
        key: key of the block.
        goes: selects the locations.
        due: Unix time from which no reader can use them; a writer has at least until its own deadline.
    """
    block = draft.get(key)
    going = [location for location in block.locations if location.is_live and goes(location)] if block else []
    if block is not None and going:
        changed = {
            location.id: replace(location, state=State.DELETING, until=max(due, location.until)) for location in going
        }
        _put(draft, key, block, changed)
    return going


def forget(draft: Draft, key: bytes, ids: Collection[str]) -> list[CacheLocation]:
    """Remove locations whose bytes were deleted from a block's record; returns those that were still in it."""
    block = draft.get(key)
    if block is None:
        return []
    gone = [location for location in block.locations if location.id in ids and not location.is_live]
    if gone:
        draft.put(key, replace(block, locations=tuple(each for each in block.locations if each not in gone)))
    return gone


def postpone(draft: Draft, key: bytes, location_id: str, until: float) -> None:
    """Postpone the deletion of a location. Its block may have a location of another attempt of the same write."""
    block = draft.get(key)
    waiting = [each for each in block.locations if each.id == location_id and not each.is_live] if block else []
    if block is not None and waiting:
        _put(draft, key, block, {each.id: replace(each, until=until) for each in waiting})


def hasten(draft: Draft, key: bytes, state: State, latest: float, until: float) -> None:
    """Change due times that are later than any valid one, for locations of a block in a state, to ``until``."""
    block = draft.get(key)
    late = [each for each in block.locations if each.state is state and each.until > latest] if block else []
    if block is not None and late:
        _put(draft, key, block, {each.id: replace(each, until=until) for each in late})


def attempt_id(write_id: str, number: int) -> str:
    """Returns the id of the locations that a write makes after ``number`` storages failed. No id is used twice."""
    return f"{write_id}{_ATTEMPT}{number}" if number else write_id


def is_made_by(location_id: str, write_id: str) -> bool:
    """Returns whether an attempt of a write made a location; copies of such a location do not count."""
    attempt = f"{write_id}{_ATTEMPT}"
    # A copy's id continues after the number.
    return location_id == write_id or (
        location_id.startswith(attempt) and location_id.removeprefix(attempt).isdecimal()
    )


def location_of(block: Block | None, made_by: str) -> CacheLocation | None:
    """Returns the location of a block that a write or copy made: that of the last attempt, if there are several."""
    made = (each for each in reversed(block.locations) if is_made_by(each.id, made_by)) if block else iter(())
    return next(made, None)


def use(draft: Draft, key: bytes, at: float, times: int, is_beside: bool = False) -> None:
    """Note that queries ended at a block, or that it was only written.

    Args:
        draft: contains the block.
        key: key of the block.
        at: Unix time.
        times: number of queries; 0: it was only written.
        is_beside: whether these queries are noted at other blocks of the prompt, too.
    """
    block = draft.get(key)
    if block is not None:
        draft.put(key, replace(heat.used(block, at, times), is_beside=is_beside or block.is_beside))


def _put(draft: Draft, key: bytes, block: Block, changed: dict[str, CacheLocation]) -> None:
    draft.put(key, replace(block, locations=tuple(changed.get(each.id, each) for each in block.locations)))

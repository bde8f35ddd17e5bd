"""The life cycle of locations: two-phase writes, serving and deletion."""

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
    """The caller must write the block, at the location in the answer."""
    SERVING = "serving"
    """The block already exists."""
    WRITING = "writing"
    """Another writer is writing the block."""
    NO_PREFIX = "no_prefix"
    """The block could not be used, because a preceding block is missing."""
    NO_ROOM = "no_room"
    """No storage has room for the block within the quotas."""


class Ending(enum.StrEnum):
    """The state of a location after its writer has finished."""

    SERVING = "serving"
    FAILED = "failed"
    """The writer reported a failure."""
    EXPIRED = "expired"
    """The write can no longer be finished, because the write took too long or the block was removed."""


def write_statuses(
    blocks: Sequence[Block | None],
    parents: Sequence[int],
    first: int,
    needs_prefix: bool,
    can_read: Callable[[str], bool],
    parts: Mapping[int, frozenset[str]],
) -> Iterator[WriteStatus]:
    """Generates the write status of each block.

    Args:
        blocks: the current records; None for missing ones.
        parents: for each block, the index of the previous block of its prompt. This index is always lower than the
            block's own index; it is negative for the first block of a prompt.
        first: index of the first block whose bytes the writer has. Of earlier blocks, the writer has only the keys.
        needs_prefix: whether a block can be used only together with all preceding blocks.
        can_read: returns whether a storage can be read now. Blocks from ``first`` on in unreadable storages must be
            written again. Earlier blocks count as present, because their storage is expected to return.
        parts: for each block whose bytes the writer has, the names of the parts that it would write.
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
        given: the indices from the caller. If empty, each block follows the block before it in the list.

    Raises:
        ValueError: the indices do not fit ``count`` blocks.
    """
    if not given:
        return range(-1, count - 1)
    if len(given) != count:
        raise ValueError(f"parents has {len(given)} entries for {count} blocks; send one entry per block")
    for index, parent in enumerate(given):
        if not -1 <= parent < index:
            raise ValueError(
                f"block {index} can't follow block {parent}; send the index of an earlier block, or -1 for none"
            )
    return given


def depths_of(parents: Sequence[int]) -> list[int]:
    """Returns, for each block, the number of blocks before it in its prompt, given the result of ``parents_of``."""
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
        block: the current record, or None if the block does not exist.
        can_read: returns whether a storage can be read now.
        parts: names of the parts that the writer would write. Locations that lack a part are ignored.
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
        parent: key of the previous block, or empty for the first block of a prompt.
        depth: number of blocks before this block.
        location: the new location.
        now: current Unix time.
    """
    block = draft.get(key)
    if block is None:
        known = parent if parent and draft.get(parent) is not None else b""
        block = Block(known, depth, now)
    draft.put(key, replace(heat.used(block, now, 0), locations=(*block.locations, location)))


def finish(draft: Draft, key: bytes, write_id: str, written: bool, due: float) -> Ending:
    """End the write of a block. The new location becomes readable, or is marked for deletion.

    A new location replaces locations in the same storage type that have only some of its parts. If a location in that
    type already has all these parts and more, the new location is marked for deletion.

    Args:
        draft: contains the block and its parent.
        key: key of the block.
        write_id: id of the write.
        written: whether all bytes of the location are stored.
        due: Unix time after which no writer or reader uses a location that is marked for deletion.
    """
    block = draft.get(key)
    location = location_of(block, write_id)
    if block is None or location is None:
        return Ending.EXPIRED
    names = location.part_names
    others = [other for other in block.serving() if other.type == location.type]
    is_replaced = any(names < other.part_names for other in others)
    if location.state is not State.WRITING:
        # A caller that did not receive the answer repeats the call, and must get the same answer.
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
    """Mark live locations of a block for deletion; returns these locations.

    Args:
        draft: contains the block and its parent.
        key: key of the block.
        goes: returns whether to delete a location.
        due: Unix time after which no reader can use the locations. A location that is being written is kept at least
            until its writer's deadline.
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
    """Drop locations from a block's record after their bytes were deleted; returns the dropped locations."""
    block = draft.get(key)
    if block is None:
        return []
    gone = [location for location in block.locations if location.id in ids and not location.is_live]
    if gone:
        draft.put(key, replace(block, locations=tuple(each for each in block.locations if each not in gone)))
    return gone


def postpone(draft: Draft, key: bytes, location_id: str, until: float) -> None:
    """Postpone the deletion of one location to the Unix time ``until``.

    The id must match exactly, because other attempts of the same write may have locations in the block, too.
    """
    block = draft.get(key)
    waiting = [each for each in block.locations if each.id == location_id and not each.is_live] if block else []
    if block is not None and waiting:
        _put(draft, key, block, {each.id: replace(each, until=until) for each in waiting})


def hasten(draft: Draft, key: bytes, state: State, latest: float, until: float) -> None:
    """Correct locations whose ``until`` is implausibly late, which a wrong clock may have caused.

    Args:
        draft: contains the block and its parent.
        key: key of the block.
        state: state of the locations to correct.
        latest: latest plausible Unix time.
        until: Unix time that replaces later times.
    """
    block = draft.get(key)
    late = [each for each in block.locations if each.state is state and each.until > latest] if block else []
    if block is not None and late:
        _put(draft, key, block, {each.id: replace(each, until=until) for each in late})


def attempt_id(write_id: str, number: int) -> str:
    """Returns the id of the locations that a write creates after failures of ``number`` storages. All ids differ."""
    return f"{write_id}{_ATTEMPT}{number}" if number else write_id


def is_made_by(location_id: str, write_id: str) -> bool:
    """Returns whether an attempt of a write created a location. Copies of such a location do not count."""
    attempt = f"{write_id}{_ATTEMPT}"
    # The id of a copy has a suffix after the number.
    return location_id == write_id or (
        location_id.startswith(attempt) and location_id.removeprefix(attempt).isdecimal()
    )


def location_of(block: Block | None, made_by: str) -> CacheLocation | None:
    """Returns the location of a block that a write or a copy created, or None if there is none.

    If several attempts of the write created locations, the location of the last attempt is returned.
    """
    made = (each for each in reversed(block.locations) if is_made_by(each.id, made_by)) if block else iter(())
    return next(made, None)


def use(draft: Draft, key: bytes, at: float, times: int, is_beside: bool = False) -> None:
    """Record that queries ended at a block, or that the block was written.

    Args:
        draft: contains the block.
        key: key of the block.
        at: Unix time of the last use.
        times: number of queries, or 0 if the block was only written.
        is_beside: whether these queries are also recorded at other blocks of the prompt.
    """
    block = draft.get(key)
    if block is not None:
        draft.put(key, replace(heat.used(block, at, times), is_beside=is_beside or block.is_beside))


def _put(draft: Draft, key: bytes, block: Block, changed: dict[str, CacheLocation]) -> None:
    draft.put(key, replace(block, locations=tuple(changed.get(each.id, each) for each in block.locations)))

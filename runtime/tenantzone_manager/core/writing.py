"""How locations come, serve and go: two-phase writes, and what ends them."""

import enum
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from tenantzone_manager.core import heat
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.records import Block, CacheLocation, State


class Standing(enum.StrEnum):
    """What a block is to who asks to write it."""

    WRITE = "write"
    """To be written by who asked, at the location that it gets."""
    SERVING = "serving"
    """There already."""
    WRITING = "writing"
    """Somebody else writes it."""
    NO_PREFIX = "no_prefix"
    """A block before it is missing, so that it would be of no use."""
    NO_ROOM = "no_room"
    """No storage has room for it within the quotas."""


class Ending(enum.StrEnum):
    """What became of a location when its writer was done."""

    SERVING = "serving"
    FAILED = "failed"
    """Its writer said so."""
    EXPIRED = "expired"
    """It is not this writer's to finish any more: it took too long, or the block was removed."""


def standings(
    blocks: Sequence[Block | None],
    parents: Sequence[int],
    first: int,
    needs_prefix: bool,
    can_read: Callable[[str], bool],
    parts: Mapping[int, frozenset[str]],
) -> Iterator[Standing]:
    """What each block is to a writer, one after the other.

    Args:
        blocks: as they are.
        parents: of each, the index of the block before it in its prompt, which is a lower one; negative: there is none.
        first: of the blocks that the writer has; those before it are named only.
        needs_prefix: whether a block is of no use without all of those before it.
        can_read: whether a storage can be read now. What the writer has and nobody can read is to be written once
            more; what it has not is there for those after it, since its storage comes back.
        parts: of each block that the writer has, the names of the parts that it would write.
    """
    is_whole: list[bool] = []
    for index, (block, parent) in enumerate(zip(blocks, parents, strict=True)):
        follows = parent < 0 or is_whole[parent]
        standing = standing_of(block, can_read, parts[index]) if index >= first else standing_of(block, _any, _NO_PARTS)
        if standing is Standing.WRITE and (index < first or not follows):
            standing = Standing.NO_PREFIX
        is_whole.append(follows and (standing is not Standing.NO_PREFIX or not needs_prefix))
        yield standing


def parents_of(count: int, given: Sequence[int]) -> Sequence[int]:
    """Of each block of a write, the index of the block before it.

    Args:
        count: blocks.
        given: as the caller says it; nothing: each follows the one that is named before it.

    Raises:
        ValueError: they are no parents of so many blocks.
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
    """Of each block, how many come before it in its prompt."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


_NO_PARTS: Final[frozenset[str]] = frozenset()
_ATTEMPT: Final = "_"


def _any(_: str) -> bool:
    return True


def standing_of(block: Block | None, can_read: Callable[[str], bool], parts: frozenset[str]) -> Standing:
    """What a block is to a writer who has all those before it.

    Args:
        block: as it is.
        can_read: whether a storage can be read now.
        parts: that the writer would write. A location that lacks one of them is not what the writer has.
    """
    locations = [each for each in block.locations if each.has(parts)] if block else ()
    states = {each.state for each in locations if each.state is not State.SERVING or can_read(each.storage)}
    if State.SERVING in states:
        return Standing.SERVING
    return Standing.WRITING if State.WRITING in states else Standing.WRITE


def begin(draft: Draft, key: bytes, parent: bytes, depth: int, location: CacheLocation, now: float) -> None:
    """Have a block be written at a location.

    Args:
        draft: has the block and its parent.
        key: of the block.
        parent: the key of the block before it; empty: none.
        depth: how many blocks come before it.
        location: where.
        now: the time.
    """
    block = draft.get(key)
    if block is None:
        known = parent if parent and draft.get(parent) is not None else b""
        block = Block(known, depth, now)
    draft.put(key, replace(heat.used(block, now, 0), locations=(*block.locations, location)))


def finish(draft: Draft, key: bytes, write_id: str, written: bool, due: float) -> Ending:
    """End a write: the location serves from now on, or goes.

    Of its storage type, it replaces those that have only some of its parts; one that has more parts replaces it.

    Args:
        draft: has the block and its parent.
        key: of the block.
        write_id: the location's.
        written: whether all of its bytes are there.
        due: until when a failed location's writer, or a replaced location's reader, may still use it.
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
    """Have live locations of a block go, once no reader and no writer can be left at them.

    Args:
        draft: has the block and its parent.
        key: of the block.
        goes: which of them.
        due: when that will be; a writer has at least until its own deadline.
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
    """Take locations out of a block's record whose bytes are gone; returns those that were still there."""
    block = draft.get(key)
    if block is None:
        return []
    gone = [location for location in block.locations if location.id in ids and not location.is_live]
    if gone:
        draft.put(key, replace(block, locations=tuple(each for each in block.locations if each not in gone)))
    return gone


def postpone(draft: Draft, key: bytes, location_id: str, until: float) -> None:
    """Have a location that is on its way out wait. Another attempt of its write may be at the same block."""
    block = draft.get(key)
    waiting = [each for each in block.locations if each.id == location_id and not each.is_live] if block else []
    if block is not None and waiting:
        _put(draft, key, block, {each.id: replace(each, until=until) for each in waiting})


def hasten(draft: Draft, key: bytes, state: State, latest: float, until: float) -> None:
    """Have locations of a block in a state that are due after the latest time that can be meant be due at another."""
    block = draft.get(key)
    late = [each for each in block.locations if each.state is state and each.until > latest] if block else []
    if block is not None and late:
        _put(draft, key, block, {each.id: replace(each, until=until) for each in late})


def attempt_id(write_id: str, number: int) -> str:
    """The id of the locations that a write makes after this number of storages has failed. No id is used twice."""
    return f"{write_id}{_ATTEMPT}{number}" if number else write_id


def is_made_by(location_id: str, write_id: str) -> bool:
    """Whether a location was made by an attempt of a write. Copies of it were not."""
    attempt = f"{write_id}{_ATTEMPT}"
    # The name of a copy of an attempt goes on behind the number.
    return location_id == write_id or (
        location_id.startswith(attempt) and location_id.removeprefix(attempt).isdecimal()
    )


def location_of(block: Block | None, made_by: str) -> CacheLocation | None:
    """The location of a block that a write, or a copy, has made; of several attempts of a write, the last one."""
    made = (each for each in reversed(block.locations) if is_made_by(each.id, made_by)) if block else iter(())
    return next(made, None)


def use(draft: Draft, key: bytes, at: float, times: int, is_beside: bool = False) -> None:
    """Note that queries have ended at a block, or that it was only written.

    Args:
        draft: has it.
        key: of the block.
        at: the time.
        times: how many did.
        is_beside: whether they are noted at what its prompt goes on with, too.
    """
    block = draft.get(key)
    if block is not None:
        draft.put(key, replace(heat.used(block, at, times), is_beside=is_beside or block.is_beside))


def _put(draft: Draft, key: bytes, block: Block, changed: dict[str, CacheLocation]) -> None:
    draft.put(key, replace(block, locations=tuple(changed.get(each.id, each) for each in block.locations)))

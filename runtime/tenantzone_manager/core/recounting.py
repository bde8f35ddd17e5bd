"""What accounts and blocks should say by the records, which are looked at one after the other while they change."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from tenantzone_manager.core import books
from tenantzone_manager.core.draft import child_steps
from tenantzone_manager.core.quota import Charge
from tenantzone_manager.core.records import Block

_NO_KEY: Final = b""
COUNTED_AT_ONCE: Final = 30_000
"""Blocks in memory that do not agree yet with the blocks after them: about 12 MB."""
_MOST_PARTS: Final = 1024


class Pass(NamedTuple):
    """One look at all records of a space, by which some of its blocks are compared with those that come next."""

    space: str
    part: int = 0
    parts: int = 1

    @property
    def is_first(self) -> bool:
        """Whether what the records use is added up, too."""
        return self.part == 0

    def has(self, key: bytes) -> bool:
        """Returns whether it is for the block with this key."""
        return self.parts == 1 or crc32(key) % self.parts == self.part

    def halves(self) -> tuple["Pass", "Pass"]:
        """Returns two passes for half of its blocks each; the first one is first if this one is."""
        return self._replace(parts=2 * self.parts), self._replace(part=self.part + self.parts, parts=2 * self.parts)


class Counts:
    """Adds up what records use, and compares what blocks count in ``children`` with the blocks that name them.

    Args:
        names: the spaces of blocks.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.spaces = tuple(names)
        self.left = [Pass(name) for name in self.spaces]
        """Passes that have not ended; the last one is in progress."""
        self.last = _NO_KEY
        """The key of that one that was looked at last."""
        self.used: dict[tuple[str, ...], tuple[int, int]] = {}
        """By chain of accounts, the bytes that are used, and those of them that are on their way out."""
        self.children: dict[str, dict[bytes, dict[str, int]]] = {}
        """By space and key, what is to be added to ``children``. At the end of a pass all others have gone."""

    def add(self, at: Pass, key: bytes, block: Block) -> None:
        """Count a record of the pass in progress."""
        if at.is_first:
            self._use(books.charges(_owner(at.space), None, block))
        # The pass may have been split since.
        at = self.left[-1]
        for counted, steps in _steps(key, None, block):
            if at.has(counted):
                self._step(at.space, counted, steps)
        here = self.children.get(at.space, {})
        if len(here) > COUNTED_AT_ONCE and at.parts < _MOST_PARTS:
            self._split(at)

    def change(self, space: str, key: bytes, before: Block | None, after: Block | None) -> None:
        """Count what has changed of a record, as far as it was looked at before."""
        if self._was_counted(space, key, None):
            self._use(books.charges(_owner(space), before, after))
        for counted, steps in _steps(key, before, after):
            if self._was_counted(space, key, counted):
                self._step(space, counted, steps)

    def go_on(self, last: bytes) -> None:
        """Note the key of the last record that was looked at; empty: the pass is at its end."""
        self.last = last
        if not last:
            self.left.pop()

    def _was_counted(self, space: str, key: bytes, compared: bytes | None) -> bool:
        """Returns whether the pass that compares this block, or without one the first pass, has looked at a record."""
        left = (each for each in self.left if each.space == space)
        to_come = next((each for each in left if (each.is_first if compared is None else each.has(compared))), None)
        return to_come is None or (to_come == self.left[-1] and key <= self.last)

    def _use(self, charges: Iterable[Charge]) -> None:
        for charge in charges:
            used, deleting = self.used.get(charge.chain, (0, 0))
            self.used[charge.chain] = used + charge.used, deleting + charge.deleting

    def _step(self, space: str, key: bytes, steps: dict[str, int]) -> None:
        here = self.children.setdefault(space, {})
        known = here.pop(key, {})
        sums = {where: known.get(where, 0) + steps.get(where, 0) for where in known | steps}
        if left := {where: count for where, count in sums.items() if count}:
            here[key] = left

    def _split(self, at: Pass) -> None:
        """Leave half of the blocks of the pass in progress to another pass."""
        goes_on, later = at.halves()
        self.left[-1:] = [later, goes_on]
        here = self.children[at.space]
        self.children[at.space] = {key: steps for key, steps in here.items() if not later.has(key)}


def _steps(key: bytes, before: Block | None, after: Block | None) -> Iterator[tuple[bytes, dict[str, int]]]:
    """What a change of a record adds to the differences of the block before it, and of its own."""
    block = after or before
    if block is not None and block.parent and (steps := child_steps(before, after)):
        yield block.parent, steps
    was, now = before.children if before else {}, after.children if after else {}
    if was != now:
        yield key, {where: was.get(where, 0) - now.get(where, 0) for where in was | now}


def _owner(space: str) -> books.Owner:
    _, group, instance = space.split("/")
    return books.Owner(instance, group)

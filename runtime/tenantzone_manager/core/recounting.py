"""Recounts the bytes of accounts and the children of blocks from all records, while other calls change the records."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from tenantzone_manager.core import books
from tenantzone_manager.core.draft import child_steps
from tenantzone_manager.core.quota import Charge
from tenantzone_manager.core.records import Block

_NO_KEY: Final = b""
COUNTED_AT_ONCE: Final = 30_000
"""Maximum number of blocks kept in memory because their count of children differs from the records read so far.

These blocks need about 12 MB.
"""
_MOST_PARTS: Final = 1024


class Pass(NamedTuple):
    """One pass over all records of a space. To bound memory, a pass checks ``children`` for only some of the blocks."""

    space: str
    part: int = 0
    parts: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this pass also adds up the bytes that the records use."""
        return self.part == 0

    def has(self, key: bytes) -> bool:
        """Returns whether this pass checks the block with this key."""
        return self.parts == 1 or crc32(key) % self.parts == self.part

    def halves(self) -> tuple["Pass", "Pass"]:
        """Returns two passes that each check half of this pass's blocks. The second never adds up bytes."""
        return self._replace(parts=2 * self.parts), self._replace(part=self.part + self.parts, parts=2 * self.parts)


class Counts:
    """Adds up the bytes that records use, and compares each block's ``children`` with the records of its children.

    Args:
        names: names of the spaces of blocks.
        owner_of: returns the owner of the blocks in a space.
    """

    def __init__(self, names: Iterable[str], owner_of: Callable[[str], books.Owner]) -> None:
        self._owner_of = owner_of
        self.spaces = tuple(names)
        self.left = [Pass(name) for name in self.spaces]
        """The passes that have not ended. The last of them is in progress."""
        self.last = _NO_KEY
        """Key of the last record that the pass in progress has read, or empty before the first record."""
        self.used: dict[tuple[str, ...], tuple[int, int]] = {}
        """Used bytes and bytes being deleted, by chain of accounts. The used bytes include the bytes being deleted."""
        self.children: dict[str, dict[bytes, dict[str, int]]] = {}
        """Nonzero corrections of ``children`` according to the records read so far, by space and key."""

    def add(self, at: Pass, key: bytes, block: Block) -> None:
        """Count a record that the pass in progress has read."""
        if at.is_first:
            self._use(books.charges(self._owner_of(at.space), None, block))
        # An earlier record of the same batch may have split the pass.
        at = self.left[-1]
        for counted, steps in _steps(key, None, block):
            if at.has(counted):
                self._step(at.space, counted, steps)
        here = self.children.get(at.space, {})
        if len(here) > COUNTED_AT_ONCE and at.parts < _MOST_PARTS:
            self._split(at)

    def change(self, space: str, key: bytes, before: Block | None, after: Block | None) -> None:
        """Apply a change of a record to those sums that already contain the record."""
        if self._was_counted(space, key, None):
            self._use(books.charges(self._owner_of(space), before, after))
        for counted, steps in _steps(key, before, after):
            if self._was_counted(space, key, counted):
                self._step(space, counted, steps)

    def go_on(self, last: bytes) -> None:
        """Store the key of the last record read; an empty key ends the pass in progress."""
        self.last = last
        if not last:
            self.left.pop()

    def _was_counted(self, space: str, key: bytes, checked: bytes | None) -> bool:
        """Returns whether the responsible pass has already read a record.

        Args:
            space: space of the record.
            key: key of the record.
            checked: key of a block. The pass that checks the ``children`` of this block is responsible. If None, the
                first pass is responsible, because it adds up bytes.
        """
        left = (each for each in self.left if each.space == space)
        to_come = next((each for each in left if (each.is_first if checked is None else each.has(checked))), None)
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
        """Split the pass in progress in two passes, so that each pass checks half of the blocks with less memory."""
        goes_on, later = at.halves()
        self.left[-1:] = [later, goes_on]
        here = self.children[at.space]
        self.children[at.space] = {key: steps for key, steps in here.items() if not later.has(key)}


def _steps(key: bytes, before: Block | None, after: Block | None) -> Iterator[tuple[bytes, dict[str, int]]]:
    """Generates the changes of ``Counts.children`` that result from a change of a block's record.

    Each item contains the key of the block or of its parent, and the numbers to add by storage type.
    """
    block = after or before
    if block is not None and block.parent and (steps := child_steps(before, after)):
        yield block.parent, steps
    was, now = before.children if before else {}, after.children if after else {}
    if was != now:
        yield key, {where: was.get(where, 0) - now.get(where, 0) for where in was | now}

"""Sweeping: removes from the disk files that belong to no zone, and reports removed spaces with receipts."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

from tenantzone_runtime.disk.adoption import Runner
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.files.layout import ObjectName
from tenantzone_runtime.disk.files.objects import Objects
from tenantzone_runtime.disk.spaces import Slots, Space

T = TypeVar("T")


class Sweeping:
    """Removes the files of ended spaces, and files found at engine start that belong to no zone.

    Args:
        objects: access to the tier's files.
        slots: the tier's free slots. Slots of a space return to them once the space's files are removed.
        run: runs a function on a thread.
        ended: called after each removal with the error, or None. :meth:`go_on` retries failed removals.
    """

    def __init__(self, objects: Objects, slots: Slots, run: Runner, ended: Callable[[Exception | None], None]) -> None:
        self._objects = objects
        self._slots = slots
        self._run = run
        self._ended = ended
        self._spaces: list[Space] = []
        self._strangers: set[str] = set()
        self._excess: set[tuple[str, ObjectName]] = set()
        self._under_way: set[object] = set()
        self._receipts: list[Receipt] = []

    @property
    def has_strangers(self) -> bool:
        """Whether files that were found at engine start and belong to no zone are still on the disk."""
        return bool(self._strangers or self._excess)

    @property
    def has_work(self) -> bool:
        """Whether files must still be removed."""
        return bool(self._spaces) or self.has_strangers

    def add_strangers(self, folders: set[str], excess: set[tuple[str, ObjectName]]) -> None:
        """Schedule the removal of folders and single files that were found at engine start."""
        self._strangers |= folders
        self._excess |= excess

    def add(self, space: Space) -> None:
        """Schedule the removal of an ended space. The caller must store no more chunks in the space."""
        self._spaces.append(space)

    def is_going(self, folder: str) -> bool:
        """Returns whether a seal's folder will be removed, including any files that are written to it until then."""
        return folder in self._strangers or any(space.seal.folder == folder for space in self._spaces)

    def go_on(self, at_most: int) -> None:
        """Start pending removals, so that at most ``at_most`` are in progress. Spaces with transfers are skipped."""
        for space in list(self._idle([space for space in self._spaces if space.is_over], at_most)):
            self._sweep(space)
        for folder in list(self._idle(self._strangers, at_most)):
            self._begin(folder, partial(self._objects.sweep, folder), partial(self._strangers.discard, folder))
        for folder, name in list(self._idle(self._excess, at_most)):
            item = (folder, name)
            self._begin(item, partial(self._objects.remove, folder, name), partial(self._excess.discard, item))

    def _idle(self, items: Iterable[T], at_most: int) -> Iterator[T]:
        """Returns items whose removal may start now, so that at most ``at_most`` removals are in progress."""
        room = max(0, at_most - len(self._under_way))
        return islice((item for item in items if item not in self._under_way), room)

    def take_receipts(self) -> list[Receipt]:
        """Returns the receipts of spaces whose files were all removed since the last call."""
        receipts, self._receipts = self._receipts, []
        return receipts

    def _sweep(self, space: Space) -> None:
        receipt = space.receipt
        assert receipt is not None, "only a removed space is swept"

        def work() -> None:
            receipt.files += self._objects.sweep(space.seal.folder)

        def done() -> None:
            self._spaces.remove(space)
            self._slots.give_back(space.given_up)
            receipt.is_complete = True
            self._receipts.append(receipt)

        self._begin(space, work, done)

    def _begin(self, item: object, work: Callable[[], object], done: Callable[[], None]) -> None:
        self._under_way.add(item)

        def ended(error: Exception | None) -> None:
            self._under_way.discard(item)
            if error is None:
                done()
            self._ended(error)

        self._run("", work, ended)

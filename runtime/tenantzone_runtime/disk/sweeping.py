"""Sweeping: what belongs to nobody any more goes from the disk, and whoever asked for it learns that it did."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

from tenantzone_runtime.disk.adoption import Runner
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.layout import ObjectName
from tenantzone_runtime.disk.objects import Objects
from tenantzone_runtime.disk.spaces import Slots, Space

T = TypeVar("T")


class Sweeping:
    """All that has to go as a whole: spaces that are over, and what was found at the start and is nobody's.

    Args:
        objects: the files.
        slots: they get back those of a space when its files are gone.
        run: how work is done by a thread.
        ended: is called with what was wrong, or None; what failed is tried again when :meth:`go_on` is called.
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
        """Whether files of nobody are on the disk since the start: they take the place of others."""
        return bool(self._strangers or self._excess)

    @property
    def has_work(self) -> bool:
        """Whether anything has to go."""
        return bool(self._spaces) or self.has_strangers

    def add_strangers(self, folders: set[str], excess: set[tuple[str, ObjectName]]) -> None:
        """Have whole folders and single files go that were found at the start."""
        self._strangers |= folders
        self._excess |= excess

    def add(self, space: Space) -> None:
        """Have all of a space go; nothing more may be stored in it."""
        self._spaces.append(space)

    def is_going(self, folder: str) -> bool:
        """Whether all files of a seal's folder are about to go, with those that come meanwhile."""
        return folder in self._strangers or any(space.seal.folder == folder for space in self._spaces)

    def go_on(self, at_most: int) -> None:
        """Have go what nothing is on its way to any more, so that at most so many folders and files are going."""
        for space in list(self._idle([space for space in self._spaces if space.is_over], at_most)):
            self._sweep(space)
        for folder in list(self._idle(self._strangers, at_most)):
            self._begin(folder, partial(self._objects.sweep, folder), partial(self._strangers.discard, folder))
        for folder, name in list(self._idle(self._excess, at_most)):
            item = (folder, name)
            self._begin(item, partial(self._objects.remove, folder, name), partial(self._excess.discard, item))

    def _idle(self, items: Iterable[T], at_most: int) -> Iterator[T]:
        """Those that are not going yet, no more of them than there is room for."""
        room = max(0, at_most - len(self._under_way))
        return islice((item for item in items if item not in self._under_way), room)

    def take_receipts(self) -> list[Receipt]:
        """The receipts that were completed since the last call."""
        receipts, self._receipts = self._receipts, []
        return receipts

    def _sweep(self, space: Space) -> None:
        receipt = space.receipt
        assert receipt is not None, "the space is over"

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

"""Sweeping: removes files that belong to no zone from the disk, and creates receipts for it."""

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
    """Removes ended spaces, and files found at the start that belong to no zone.

    Args:
        objects: the files.
        slots: the slots, to which slots of a space return once its files are removed.
        run: runs work on a thread.
        ended: called after each removal, with its error or None. :meth:`go_on` retries failed removals.
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
        """Whether files found at the start that belong to no zone still take up room."""
        return bool(self._strangers or self._excess)

    @property
    def has_work(self) -> bool:
        """Whether anything must be removed."""
        return bool(self._spaces) or self.has_strangers

    def add_strangers(self, folders: set[str], excess: set[tuple[str, ObjectName]]) -> None:
        """Add whole folders and single files that were found at the start."""
        self._strangers |= folders
        self._excess |= excess

    def add(self, space: Space) -> None:
        """Add an ended space. No more chunks may be stored in it."""
        self._spaces.append(space)

    def is_going(self, folder: str) -> bool:
        """Returns whether a seal's folder is about to be removed, including files that are added meanwhile."""
        return folder in self._strangers or any(space.seal.folder == folder for space in self._spaces)

    def go_on(self, at_most: int) -> None:
        """Begin removals of items without transfers, with at most ``at_most`` folders and files in progress."""
        for space in list(self._idle([space for space in self._spaces if space.is_over], at_most)):
            self._sweep(space)
        for folder in list(self._idle(self._strangers, at_most)):
            self._begin(folder, partial(self._objects.sweep, folder), partial(self._strangers.discard, folder))
        for folder, name in list(self._idle(self._excess, at_most)):
            item = (folder, name)
            self._begin(item, partial(self._objects.remove, folder, name), partial(self._excess.discard, item))

    def _idle(self, items: Iterable[T], at_most: int) -> Iterator[T]:
        """Returns items that are not being removed yet, so that at most ``at_most`` removals are in progress."""
        room = max(0, at_most - len(self._under_way))
        return islice((item for item in items if item not in self._under_way), room)

    def take_receipts(self) -> list[Receipt]:
        """Returns the receipts that were completed since the last call."""
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

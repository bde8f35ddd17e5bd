"""Spaces and slots of the disk tier. A space has the chunks that a zone stored between two purges."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.files.layout import ObjectName
from tenantzone_runtime.disk.files.sealing import Seal
from tenantzone_runtime.disk.transfers import Removal


@dataclass(frozen=True, slots=True)
class Entry:
    """A chunk of a space: the slot (the tier's chunk id), and the name of the chunk's file."""

    slot: int
    name: ObjectName


@dataclass(eq=False, slots=True)
class Space:
    """The chunks of one zone that were sealed with one seal."""

    tenant: str
    purge: str
    seal: Seal
    entries: dict[bytes, Entry] = field(default_factory=dict)
    """Chunks by key, including chunks that are being stored."""
    transfers: int = 0
    """Number of chunks in transfer. Their transfers may still create files."""
    receipt: Receipt | None = None
    """Receipt for removing the space; None while the space is in use."""
    given_up: list[int] = field(default_factory=list)
    """Slots that become free when all files of the space are removed."""

    @property
    def is_over(self) -> bool:
        """Whether the files can be removed: the space has ended, and has neither chunks nor transfers left."""
        return self.receipt is not None and not self.transfers and not self.entries


class Slots:
    """The free slots (chunk ids) of the tier. The old file of a free slot may still have to be removed."""

    def __init__(self, count: int) -> None:
        self.free = deque(range(count))
        self._removals: dict[int, Removal] = {}

    def take(self, count: int) -> list[int]:
        """Take and return at most ``count`` free slots.

        The slots that became free first are taken first, because their old files are probably removed already.
        """
        return [self.free.popleft() for _ in range(min(count, len(self.free)))]

    def give_back(self, slots: Iterable[int]) -> None:
        """Make slots free again. They have no new files that must be removed before their next use."""
        self.free.extend(slots)

    def give_up(self, slot: int, removal: Removal) -> None:
        """Make a slot free again. Its old file must be removed before the slot's next use."""
        self.free.append(slot)
        self._removals[slot] = removal

    def removal(self, slot: int) -> Removal | None:
        """Returns the removal to make before this slot's next file is written, or None."""
        return self._removals.get(slot)

    def removed(self, slot: int, removal: Removal) -> None:
        """Record that a slot's old file was removed. Ignored if the slot has a newer removal."""
        if self._removals.get(slot) is removal:
            del self._removals[slot]

    @property
    def to_remove(self) -> list[tuple[int, Removal]]:
        """The slots whose old files are not removed yet, each with its removal."""
        return list(self._removals.items())

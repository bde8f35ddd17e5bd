"""Spaces: a zone's chunks on the disk between two purges, and the removal of a whole space."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.files.layout import ObjectName
from tenantzone_runtime.disk.files.sealing import Seal
from tenantzone_runtime.disk.transfers import Removal


@dataclass(frozen=True, slots=True)
class Entry:
    """A chunk of a space: the tier's chunk id, and the name of its file."""

    slot: int
    name: ObjectName


@dataclass(eq=False, slots=True)
class Space:
    """One zone's chunks under one seal."""

    tenant: str
    purge: str
    seal: Seal
    entries: dict[bytes, Entry] = field(default_factory=dict)
    """Chunks by key, including those that are being stored."""
    transfers: int = 0
    """Number of chunks in transfer, which may still create files."""
    receipt: Receipt | None = None
    """Receipt of the space's removal; None while the space is in use."""
    given_up: list[int] = field(default_factory=list)
    """Slots that become free when the space is swept."""

    @property
    def is_over(self) -> bool:
        """Whether the space has ended, has no transfers in progress, and all its chunks are evicted."""
        return self.receipt is not None and not self.transfers and not self.entries


class Slots:
    """The tier's free chunk ids (slots). A slot has at most one file, which may still have to be removed."""

    def __init__(self, count: int) -> None:
        self.free = deque(range(count))
        self._removals: dict[int, Removal] = {}

    def take(self, count: int) -> list[int]:
        """Take at most ``count`` free slots.

        The slots that have been free for longest come first, because their files are probably removed already.
        """
        return [self.free.popleft() for _ in range(min(count, len(self.free)))]

    def give_back(self, slots: Iterable[int]) -> None:
        """Add free slots without files."""
        self.free.extend(slots)

    def give_up(self, slot: int, removal: Removal) -> None:
        """Add a free slot whose file must be removed before the slot is used again."""
        self.free.append(slot)
        self._removals[slot] = removal

    def removal(self, slot: int) -> Removal | None:
        """Returns the removal to make before a file of this slot is written."""
        return self._removals.get(slot)

    def removed(self, slot: int, removal: Removal) -> None:
        """Record that a removal was made."""
        if self._removals.get(slot) is removal:
            del self._removals[slot]

    @property
    def to_remove(self) -> list[tuple[int, Removal]]:
        """Removals that are not confirmed yet, with their slots."""
        return list(self._removals.items())

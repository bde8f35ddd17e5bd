"""Spaces: what one zone has on the disk between two purges, and how all of a space goes when it is over."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.layout import ObjectName
from tenantzone_runtime.disk.sealing import Seal
from tenantzone_runtime.disk.transfers import Removal


@dataclass(frozen=True, slots=True)
class Entry:
    """A chunk of a space: the tier's chunk id, and the name of its file."""

    slot: int
    name: ObjectName


@dataclass(eq=False, slots=True)
class Space:
    """What one zone has under one seal."""

    tenant: str
    purge: str
    seal: Seal
    entries: dict[bytes, Entry] = field(default_factory=dict)
    """By key; also of chunks that are being stored."""
    transfers: int = 0
    """Chunks on their way, which may still make files."""
    receipt: Receipt | None = None
    """None: the space is in use."""
    given_up: list[int] = field(default_factory=list)
    """Slots that are free when the space is swept."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is on its way there, and all that it had was given up."""
        return self.receipt is not None and not self.transfers and not self.entries


class Slots:
    """The tier's chunk ids that nobody holds. One file at most stands for each, also while it waits for its removal."""

    def __init__(self, count: int) -> None:
        self.free = deque(range(count))
        self._removals: dict[int, Removal] = {}

    def take(self, count: int) -> list[int]:
        """Take free slots, as many as there are; those first that have been free for longest, and are empty by now."""
        return [self.free.popleft() for _ in range(min(count, len(self.free)))]

    def give_back(self, slots: Iterable[int]) -> None:
        """Slots are free, and have no file."""
        self.free.extend(slots)

    def give_up(self, slot: int, removal: Removal) -> None:
        """A slot is free, and its file has to be removed before another stands for it."""
        self.free.append(slot)
        self._removals[slot] = removal

    def removal(self, slot: int) -> Removal | None:
        """What has to be made before a file of this slot is written."""
        return self._removals.get(slot)

    def removed(self, slot: int, removal: Removal) -> None:
        """The file of this removal is gone."""
        if self._removals.get(slot) is removal:
            del self._removals[slot]

    @property
    def to_remove(self) -> list[tuple[int, Removal]]:
        """Removals that are not known to be made."""
        return list(self._removals.items())

"""A cache of the number of free slots of large files, so that most writes find room at the first attempt."""

import time
from collections.abc import Callable
from typing import Final

from tenantzone_manager.core.slots import SlotFile
from tenantzone_manager.index.meta_index import MetaIndex

_RESCAN_SECONDS: Final = 30.0


def file_key(slot_size: int, number: int) -> bytes:
    """Returns the key of a large file's record."""
    return f"{slot_size}/{number}".encode()


class SlotFiles:
    """Remembers the number of free slots per file. The number may be outdated, so commits check the files' records.

    Args:
        index: index with the records.
        clock: returns monotonic seconds.
    """

    def __init__(self, index: MetaIndex, clock: Callable[[], float] = time.monotonic) -> None:
        self._index = index
        self._clock = clock
        self._free: dict[tuple[str, int], dict[int, int]] = {}
        """Number of free slots by file number, for each space and slot size."""
        self._scanned: dict[str, float] = {}

    async def choose(self, space: str, slot_size: int, slots_per_file: int, count: int) -> list[int]:
        """Returns the numbers of files that together have ``count`` free slots. Some of the files may be new."""
        if space not in self._scanned:
            await self._scan(space)
        chosen = self._with_room(space, slot_size, count)
        if sum(self._free[space, slot_size][number] for number in chosen) < count:
            if self._clock() > self._scanned[space] + _RESCAN_SECONDS:
                await self._scan(space)
                chosen = self._with_room(space, slot_size, count)
            known = self._free.setdefault((space, slot_size), {})
            while sum(known[number] for number in chosen) < count:
                number = max(known, default=-1) + 1
                known[number] = slots_per_file
                chosen.append(number)
        return chosen

    def note(self, space: str, number: int, file: SlotFile) -> None:
        """Remember how many free slots a file has."""
        self._free.setdefault((space, file.slot_size), {})[number] = file.free

    def _with_room(self, space: str, slot_size: int, count: int) -> list[int]:
        chosen: list[int] = []
        for number, free in sorted(self._free.setdefault((space, slot_size), {}).items()):
            if count <= 0:
                break
            if free:
                chosen.append(number)
                count -= free
        return chosen

    async def _scan(self, space: str) -> None:
        self._scanned[space] = self._clock()
        cursor = b""
        while True:
            some, cursor = await self._index.scan(space, cursor, 500)
            for key, file in some:
                self.note(space, int(key.partition(b"/")[2]), file)
            if not cursor:
                return

"""Slots of large files, for storages whose metadata service can't handle one file per block.

A file is divided into slots of equal size. The index has a record of each file. The same commit changes this record and
the records of blocks in the file. Therefore, no slot leaks or is allocated twice, even if a process is killed.
"""

import msgspec


class SlotFile(msgspec.Struct, frozen=True, array_like=True):
    """The record of one large file."""

    slot_size: int
    """Size of a slot in bytes."""
    slots: int
    """Number of slots."""
    taken: bytes = b""
    """Bitmap of the allocated slots, little-endian, without trailing zero bytes."""

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self.slots - int.from_bytes(self.taken, "little").bit_count()

    def take(self, count: int) -> tuple["SlotFile", list[int]]:
        """Allocate up to ``count`` free slots, lowest first; returns the new record and the allocated slots."""
        bits = int.from_bytes(self.taken, "little")
        free = ~bits & ((1 << self.slots) - 1)
        chosen: list[int] = []
        while free and len(chosen) < count:
            lowest = free & -free
            chosen.append(lowest.bit_length() - 1)
            free ^= lowest
            bits |= lowest
        return self._with(bits), chosen

    def give_back(self, slots: list[int]) -> "SlotFile":
        """Free these slots; returns the new record."""
        bits = int.from_bytes(self.taken, "little")
        for slot in slots:
            bits &= ~(1 << slot)
        return self._with(bits)

    def _with(self, bits: int) -> "SlotFile":
        return msgspec.structs.replace(self, taken=bits.to_bytes((bits.bit_length() + 7) // 8, "little"))


def closed(slot_size: int) -> SlotFile:
    """Returns a record without free slots. It is used for a file whose allocated slots are unknown."""
    return SlotFile(slot_size, 0)

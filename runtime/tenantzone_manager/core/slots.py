"""Slots of large files, for storages whose metadata can't handle one file per block.

A file is divided into slots of one size. Its record is in the index and changes in the same commit as the blocks'
records, so no slot is lost or allocated twice, even if a process is killed in between.
"""

import msgspec


class SlotFile(msgspec.Struct, frozen=True, array_like=True):
    """One large file."""

    slot_size: int
    """Bytes."""
    slots: int
    taken: bytes = b""
    """A bit for each slot, little-endian; zeros at the end are left out."""

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self.slots - int.from_bytes(self.taken, "little").bit_count()

    def take(self, count: int) -> tuple["SlotFile", list[int]]:
        """Returns the file with its first ``count`` free slots taken, or fewer if it has fewer, and these slots."""
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
        """Returns the file with these slots free."""
        bits = int.from_bytes(self.taken, "little")
        for slot in slots:
            bits &= ~(1 << slot)
        return self._with(bits)

    def _with(self, bits: int) -> "SlotFile":
        return msgspec.structs.replace(self, taken=bits.to_bytes((bits.bit_length() + 7) // 8, "little"))


def closed(slot_size: int) -> SlotFile:
    """Returns a file whose taken slots are unknown: its blocks stay, and it allocates no slots."""
    return SlotFile(slot_size, 0)

"""Which blocks of a large file are taken: for storages whose metadata can't bear one file per block.

A file is cut into slots of one size. Its record is in the index beside the blocks' records and changes in the same
commit as theirs, so that no slot is ever lost or given out twice, whoever is killed in between.
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
        """How many slots are not taken."""
        return self.slots - int.from_bytes(self.taken, "little").bit_count()

    def take(self, count: int) -> tuple["SlotFile", list[int]]:
        """The file with so many of its free slots taken, the first ones; fewer if it has not as many."""
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
        """The file with these slots free."""
        bits = int.from_bytes(self.taken, "little")
        for slot in slots:
            bits &= ~(1 << slot)
        return self._with(bits)

    def _with(self, bits: int) -> "SlotFile":
        return msgspec.structs.replace(self, taken=bits.to_bytes((bits.bit_length() + 7) // 8, "little"))


def closed(slot_size: int) -> SlotFile:
    """A file of which nobody knows any more which slots are taken: blocks stay in it, and it gives out none."""
    return SlotFile(slot_size, 0)

"""The chunks of a tier that are in transfer: being stored, loaded or copied to a tier below."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenantzone_runtime.zones.model.zone import Zone


@dataclass(slots=True)
class Transfer:
    """A chunk in transfer."""

    zone: Zone
    purges: int
    """Number of the zone's purges that had begun when the transfer began."""
    readers: int = 0
    """Number of loads of the chunk, and of its copies to a tier below, in progress; 0 while it is being stored."""
    is_lost: bool = False
    """Whether the chunk is corrupt or useless, so that it is dropped when the transfer ends."""

    @property
    def may_be_kept(self) -> bool:
        """Whether the chunk may be kept: it is intact, and its zone may store chunks and has begun no purge since."""
        if self.is_lost or self.zone.leaving or self.zone.spec.retention.no_store:
            return False
        return self.purges == self.zone.purges


Ended = Sequence[tuple[int, Transfer]]
"""Chunks whose last transfer has ended, each with this transfer."""


class ChunksInTransfer:
    """The chunks of one tier that are in transfer. They count as in use, so that they are not evicted."""

    def __init__(self) -> None:
        self.storing: Counter[Zone] = Counter()
        """Number of chunks that are being stored, by zone."""
        self.loading: Counter[Zone] = Counter()
        """Number of chunks that are being loaded, by zone. A chunk counts once for each load."""
        self._transfers: dict[int, Transfer] = {}

    # Questions

    def get(self, chunk_id: int) -> Transfer | None:
        """Returns the transfer of a chunk; None if it is not in transfer."""
        return self._transfers.get(chunk_id)

    def is_storing(self, zone: Zone, chunk_id: int) -> bool:
        """Whether the zone can load the chunk soon, because it is being stored."""
        transfer = self._transfers.get(chunk_id)
        return transfer is not None and not transfer.readers and transfer.may_be_kept and transfer.zone is zone

    def has_stored(self, zone: Zone, chunk_id: int) -> bool:
        """Whether the zone can load the chunk now: the zone owns it, and it is completely stored and not purged."""
        transfer = self._transfers.get(chunk_id)
        if transfer is None:
            return chunk_id in zone.cached
        return transfer.readers > 0 and transfer.zone is zone and transfer.may_be_kept

    def withdrawn(self, zone: Zone) -> int:
        """Returns the number of the zone's chunks in transfer that a purge has withdrawn since the transfer began."""
        transfers = self._transfers.values()
        return sum(transfer.zone is zone and transfer.purges < zone.purges for transfer in transfers)

    # Changes

    def begin_stores(self, zone: Zone, chunk_ids: Sequence[int]) -> None:
        """Note that stores into the zone's new chunks have begun."""
        self._transfers.update((chunk_id, Transfer(zone, zone.purges)) for chunk_id in chunk_ids)
        if chunk_ids:
            self.storing[zone] += len(chunk_ids)

    def end_stores(self, chunk_ids: Iterable[int]) -> Ended:
        """Note that stores have ended; returns their transfers."""
        ended = [(chunk_id, self._transfers.pop(chunk_id)) for chunk_id in chunk_ids]
        _subtract(self.storing, (transfer.zone for _, transfer in ended))
        return ended

    def begin_loads(self, zone: Zone, chunk_ids: Sequence[int]) -> Sequence[int]:
        """Note that loads of the zone's chunks have begun; returns the chunks that were not in transfer before."""
        self.loading[zone] += len(chunk_ids)
        return self.begin_reads(zone, chunk_ids)

    def end_loads(self, chunk_ids: Sequence[int]) -> Ended:
        """Note that loads have ended; returns the transfers of the chunks that are no longer being read."""
        _subtract(self.loading, (self._transfers[chunk_id].zone for chunk_id in chunk_ids))
        return self.end_reads(chunk_ids)

    def begin_reads(self, zone: Zone, chunk_ids: Sequence[int]) -> Sequence[int]:
        """Note that loads or copies of the zone's chunks have begun.

        Returns:
            The chunks that were not in transfer before, and are in use from now on.
        """
        new = [chunk_id for chunk_id in chunk_ids if chunk_id not in self._transfers]
        self._transfers.update((chunk_id, Transfer(zone, zone.purges)) for chunk_id in new)
        for chunk_id in chunk_ids:
            self._transfers[chunk_id].readers += 1
        return new

    def end_reads(self, chunk_ids: Iterable[int]) -> Ended:
        """Note that loads or copies have ended; returns the transfers of the chunks that are no longer being read."""
        ended = []
        for chunk_id in chunk_ids:
            transfer = self._transfers[chunk_id]
            transfer.readers -= 1
            if not transfer.readers:
                ended.append((chunk_id, self._transfers.pop(chunk_id)))
        return ended

    def take_all(self) -> Mapping[int, Transfer]:
        """Returns and clears all transfers. Their ends must not be reported later."""
        transfers, self._transfers = self._transfers, {}
        self.storing.clear()
        self.loading.clear()
        return transfers

    def check(self, zones: Iterable[Zone]) -> None:
        """Check the counts of zones by going through all chunks in transfer.

        Raises:
            AssertionError: the counts are inconsistent.
        """
        in_transfer = Counter(transfer.zone for transfer in self._transfers.values())
        for zone in zones:
            assert in_transfer[zone] == zone.in_use, (
                f"zone {zone.spec.tenant}: other chunks are in use than in transfer"
            )
        stores = Counter(transfer.zone for transfer in self._transfers.values() if not transfer.readers)
        assert stores == self.storing


def _subtract(counts: Counter[Zone], zones: Iterable[Zone]) -> None:
    for zone in zones:
        counts[zone] -= 1
        if not counts[zone]:
            # The entries of removed zones would accumulate otherwise.
            del counts[zone]

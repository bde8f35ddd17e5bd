"""Gives up the chunks of a tier that have become useless: evicted ones, and those that are only useful with them."""

from collections.abc import Callable, Iterable, Set
from itertools import filterfalse

from tenantzone_runtime.zones.blocks import purging, states
from tenantzone_runtime.zones.blocks.eviction import Evictions, trim_to_limit
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.config import configure
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.chunks_in_transfer import ChunksInTransfer, Ended
from tenantzone_runtime.zones.tiers.links import Links


class UselessChunks:
    """Gives up useless chunks of one tier.

    Args:
        ledger: the owners of the tier's chunks.
        links: links between chunks that are only useful together.
        transfers: the chunks in transfer. If one of them is useless, it is given up when its last transfer ends.
        is_counted_on: returns whether an unfinished request depends on a chunk, which is then not useless.
    """

    def __init__(
        self, ledger: Ledger, links: Links, transfers: ChunksInTransfer, is_counted_on: Callable[[int], bool]
    ) -> None:
        self._ledger = ledger
        self._links = links
        self._transfers = transfers
        self._is_counted_on = is_counted_on

    def after_transfers(self, ended: Ended, *, keeping: bool) -> list[int]:
        """Keep the chunks of ended transfers if possible; returns the chunks that are given up instead.

        Args:
            ended: the ended transfers.
            keeping: whether to keep the chunks at all.
        """
        given_up: list[int] = []
        for chunk_id, transfer in ended:
            kept = keeping and transfer.may_be_kept
            self._ledger.release(transfer.zone, [chunk_id] if kept else [], [] if kept else [chunk_id])
            if not kept:
                given_up.append(chunk_id)
        given_up += self.give_up(self._links.unlink(given_up))
        for zone in dict.fromkeys(transfer.zone for _, transfer in ended):
            given_up += self.after_evictions([(zone, trim_to_limit(self._ledger, zone))])
        return given_up

    def after_evictions(self, evicted: Evictions, needed: Set[int] = frozenset()) -> list[int]:
        """Give up the chunks that are only useful with evicted ones, except ``needed``; returns all freed chunks."""
        gone = [chunk_id for _, chunk_ids in evicted for chunk_id in chunk_ids]
        gone += self.give_up(chunk_id for chunk_id in self._links.unlink(gone) if chunk_id not in needed)
        for zone, chunk_ids in evicted:
            if chunk_ids:
                states.blocks_evicted(self._ledger, zone)
            configure.discard_if_gone(self._ledger, zone)
        return gone

    def give_up(self, chunk_ids: Iterable[int]) -> list[int]:
        """Give up useless chunks, at once or when their transfer ends; returns the chunks given up at once."""
        given_up: dict[Zone, list[int]] = {}
        for chunk_id in filterfalse(self._is_counted_on, chunk_ids):
            zone, transfer = self._ledger.owner[chunk_id], self._transfers.get(chunk_id)
            if transfer is not None:
                transfer.is_lost = True
            elif zone is not None:
                given_up.setdefault(zone, []).append(chunk_id)
        for zone, chunks_of_zone in given_up.items():
            if purging.is_under_way(zone):
                purging.evict_left_behind(self._ledger, zone, chunks_of_zone)
            else:
                self._ledger.evict_blocks(zone, chunks_of_zone, "reset")
            states.blocks_evicted(self._ledger, zone)
        return [chunk_id for chunks_of_zone in given_up.values() for chunk_id in chunks_of_zone]

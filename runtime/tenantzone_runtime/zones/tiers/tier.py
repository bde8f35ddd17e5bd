"""One tier below an engine's blocks: which zone owns which chunks, how many it may store, and which are in transfer.

A tier is a tenancy like that of an engine, but counts chunks instead of blocks. A chunk that is being stored or loaded
counts as *in use*, so that it is not evicted; all other chunks are cached. A tier differs from an engine in two ways:
a zone is entitled to chunks by other rules (see
:func:`~tenantzone_runtime.zones.blocks.eviction.make_room_to_hold`), and each zone may only have a bounded number of
chunks in transfer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.tiers import TierName
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.zones.blocks import purging
from tenantzone_runtime.zones.blocks.eviction import Evictions, make_room_to_hold, most_to_hold
from tenantzone_runtime.zones.model.parts import ALL
from tenantzone_runtime.zones.model.quota import Quota
from tenantzone_runtime.zones.model.zone import EARLY_TENANT, Zone, ZoneSpec, new_zone
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.tiers.chunks_in_transfer import ChunksInTransfer
from tenantzone_runtime.zones.tiers.links import Links
from tenantzone_runtime.zones.tiers.tier_admission import TierAdmission
from tenantzone_runtime.zones.tiers.tier_config import tier_config
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts, TierTotals
from tenantzone_runtime.zones.tiers.useless_chunks import UselessChunks


@dataclass(frozen=True, slots=True)
class TransferBounds:
    """Maximum numbers of chunks that one zone may have in transfer at once, for each direction."""

    stores: int
    loads: int


class Tier:
    """The chunks of one tier, and the zones that own them.

    Several methods return the ids of chunks that were given up. These chunks are free, and the caller must remove their
    keys.

    Args:
        name: name of the tier, as in the config.
        chunk_count: number of chunks; their ids run from 0 to ``chunk_count - 1``.
        chunk_bytes: size of one chunk in bytes.
        bounds: maximum number of chunks in transfer, for each zone.
        now: current time in seconds of any monotonic clock.
    """

    def __init__(
        self, name: TierName, chunk_count: int, chunk_bytes: int, bounds: TransferBounds, now: float = 0.0
    ) -> None:
        self.name = name
        self.chunk_count = chunk_count
        self.chunk_bytes = chunk_bytes
        self.bounds = bounds
        self.tenancy = Tenancy(chunk_count, chunk_count, now, lends_cache=False)
        self.ledger = self.tenancy.ledger
        self._transfers = ChunksInTransfer()
        self.storing, self.loading = self._transfers.storing, self._transfers.loading
        self.is_storing, self.has_stored = self._transfers.is_storing, self._transfers.has_stored
        self.counts: dict[Zone, TierCounts] = {}
        """Counts by zone, for zones with at least one counted event."""
        self.totals = TierTotals()
        self.admission = TierAdmission(name, self.counts_of, self.ledger.is_present)
        self.ledger.departures.append(self._forget_zone)
        self.links = Links()
        """Links between chunks that are only useful together; empty if the model has a single KV cache group."""
        self.is_counted_on: Callable[[int], bool] = lambda chunk_id: False
        """Returns whether an unfinished request depends on a chunk, which may join a hit when the request ends."""
        self._useless = UselessChunks(
            self.ledger, self.links, self._transfers, lambda chunk_id: self.is_counted_on(chunk_id)
        )
        # Until a config declares zones, all requests belong to one zone, which may use the whole tier.
        spec = ZoneSpec(EARLY_TENANT, EARLY_TENANT, 0, 0, Quota(0, chunk_count, 0), Idle(after_seconds=inf))
        self.ledger.add(new_zone(spec, now, self.ledger.links))

    @property
    def free(self) -> int:
        return self.chunk_count - self.ledger.held_blocks

    def zone_for(self, tenant: str | None, now: float) -> Zone | None:
        """Returns a tenant's zone in the tier, or None if the tier stores nothing for the tenant.

        ``tenant`` is None for requests that arrived before any zone was declared.
        """
        return self.tenancy.zone_for(EARLY_TENANT if tenant is None else tenant, now)

    def counts_of(self, zone: Zone) -> TierCounts:
        """Returns the counts of a zone."""
        counts = self.counts.get(zone)
        if counts is None:
            counts = TierCounts(totals=self.totals)
            # The counts of a removed zone would never be read.
            if self.ledger.is_present(zone):
                self.counts[zone] = counts
        return counts

    def _forget_zone(self, zone: Zone) -> None:
        """Forget a zone that is gone."""
        self.counts.pop(zone, None)
        self.admission.forget(zone)

    def request_arrived(self, zone: Zone, now: float) -> None:
        """Note that a request of the zone may store and load from now on."""
        self.tenancy.request_arrived(zone, now)

    def request_finished(self, zone: Zone, now: float) -> None:
        """Note that a request of the zone has ended. Its transfers continue."""
        self.tenancy.request_finished(zone, now)

    # Stores

    def make_room(
        self, zone: Zone, count: int, protected: Sequence[int] = (), *, whole: bool = False
    ) -> tuple[int, list[int]]:
        """Make room for up to ``count`` new chunks of a zone.

        Args:
            zone: the zone that stores the chunks.
            count: number of new chunks.
            protected: chunks that must not be evicted for the new ones. They are the beginning of the same prompt,
                without which the new chunks are worthless.
            whole: whether the new chunks are only useful all together, so that nothing is evicted unless all of them
                fit. Protected chunks are then kept even if a chunk that they are linked to is evicted, because a
                request depends on them, or the caller links them to the new chunks at once.

        Returns:
            The number of new chunks that the zone may store now, and the ids of chunks that were given up for them.
        """
        if count <= 0 or zone.leaving or zone.spec.retention.no_store:
            return 0, []
        counts, asked = self.counts_of(zone), count
        count = max(0, min(asked, self.bounds.stores - self.storing[zone]))
        if whole and count < asked:
            count = 0
        counts.refuse_writes("transfers", asked - count)
        if not count:
            return 0, []
        kept = [chunk_id for chunk_id in protected if chunk_id in zone.cached]
        self.ledger.reuse(zone, kept)
        granted: int = 0
        evicted: Evictions = []
        if not whole or most_to_hold(self.ledger, zone, count, self.free) == count:
            granted, evicted = make_room_to_hold(self.ledger, zone, count, self.free)
        if whole and granted < count:
            granted = 0
        # In reverse order, as requests release blocks, so that the end of a prompt is evicted first.
        self.ledger.release(zone, kept[::-1], [])
        lacking = count - granted
        below = max(0, min(lacking, zone.spec.quota.reserved - zone.held - granted))
        counts.refuse_writes("reserved", below)
        counts.refuse_writes("room", lacking - below)
        return granted, self._useless.after_evictions(evicted, frozenset(protected) if whole else frozenset())

    def store(self, zone: Zone, chunk_ids: list[int]) -> None:
        """Begin to store into free chunks, for which `make_room` has made room."""
        self.ledger.take(zone, chunk_ids)
        self._transfers.begin_stores(zone, chunk_ids)

    def stored(self, chunk_ids: Iterable[int], *, success: bool = True) -> list[int]:
        """Note that stores of chunks have succeeded or failed; returns the chunks that are not kept."""
        ended = self._transfers.end_stores(chunk_ids)
        for _, transfer in ended:
            self.counts_of(transfer.zone).note_written(int(success))
        for zone in {transfer.zone for _, transfer in ended}:
            self.admission.used(zone, self.ledger.now)
        return self._useless.after_transfers(ended, keeping=success)

    # Loads

    def holds(self, zone: Zone, chunk_id: int) -> bool:
        """Whether the zone can load the chunk, now or soon."""
        return self.has_stored(zone, chunk_id) or self.is_storing(zone, chunk_id)

    def loadable(self, zone: Zone) -> int:
        """Returns the maximum number of chunks that one request of the zone may begin to load now.

        It never exceeds the zone's limit. The rest of a longer prompt is computed.
        """
        return max(0, min(self.bounds.loads - self.loading[zone], zone.spec.quota.limit))

    def load(self, zone: Zone, chunk_ids: Iterable[int]) -> None:
        """Begin to load chunks that the zone has stored."""
        chunk_ids = list(chunk_ids)
        self._reuse(zone, self._transfers.begin_loads(zone, chunk_ids))
        self.counts_of(zone).hits += len(chunk_ids)
        self.admission.used(zone, self.ledger.now)

    def loaded(self, chunk_ids: Iterable[int]) -> list[int]:
        """Note that loads of chunks have ended; returns the chunks that are not kept."""
        return self._useless.after_transfers(self._transfers.end_loads(list(chunk_ids)), keeping=True)

    # Copies to a tier below

    def copy_down(self, zone: Zone, chunk_ids: Iterable[int]) -> None:
        """Begin to copy stored chunks of the zone to a tier below, which bounds the number of copies in progress."""
        self._reuse(zone, self._transfers.begin_reads(zone, list(chunk_ids)))

    def copied_down(self, chunk_ids: Iterable[int]) -> list[int]:
        """Note that copies of chunks have ended; returns the chunks that are not kept."""
        return self._useless.after_transfers(self._transfers.end_reads(chunk_ids), keeping=True)

    def _reuse(self, zone: Zone, chunk_ids: Sequence[int]) -> None:
        if chunk_ids:
            self.ledger.reuse(zone, chunk_ids)

    def use(self, zone: Zone, chunk_ids: Iterable[int]) -> None:
        """Note that chunks were used, in this order. Chunks that the zone does not have cached are ignored."""
        cached = [chunk_id for chunk_id in chunk_ids if chunk_id in zone.cached]
        if cached:
            self.ledger.reuse(zone, cached)
            self.ledger.release(zone, cached, [])

    def lose(self, zone: Zone, chunk_id: int) -> list[int]:
        """Give up a chunk whose bytes are missing or wrong; returns the chunks that were given up.

        A chunk in transfer is not returned: it can't be found from now on, and is given up when its last transfer ends.
        """
        transfer = self._transfers.get(chunk_id)
        if transfer is not None:
            transfer.is_lost = True
            return []
        if chunk_id not in zone.cached:
            return []
        self.ledger.evict_block(zone, chunk_id, "reset")
        return self._useless.after_evictions([(zone, [chunk_id])])

    def link(self, zone: Zone, chunk_ids: Iterable[int], hits: Iterable[Sequence[int]]) -> list[int]:
        """Note chunks that are only useful together, and give up a request's chunks that no hit uses.

        When one chunk of a hit is evicted, its other chunks go too, unless another hit or a request uses them.

        Args:
            zone: the owner of the chunks.
            chunk_ids: chunks on which only this request depended until now.
            hits: the chunks of each hit, as in `HitShape.keys`. Hits with missing chunks are ignored.
        """
        for hit in hits:
            if all(self.holds(zone, chunk_id) for chunk_id in hit):
                self.links.link(hit)
        return self._useless.give_up(
            chunk_id for chunk_id in chunk_ids if chunk_id not in self.links and self.holds(zone, chunk_id)
        )

    def find_again(self, zone: Zone, free: Sequence[int], unused_for: Sequence[float]) -> tuple[list[int], list[int]]:
        """Assign chunks that a previous engine has stored to their zone, preferring the most recently used ones.

        Args:
            zone: the owner, which has stored nothing yet.
            free: ids of free chunks.
            unused_for: for each chunk that was found, the seconds since its last use, in descending order.

        Returns:
            Chunk ids for as many of the last elements of ``unused_for`` as fit, in the same order; and the chunks that
            were given up for them.
        """
        granted, evicted = make_room_to_hold(self.ledger, zone, min(len(unused_for), len(free)), self.free)
        chunk_ids = list(free[:granted])
        if chunk_ids:
            self.ledger.take(zone, chunk_ids)
            self.ledger.release(zone, chunk_ids, [])
            # Their TTL counts from their last use in the previous engine, not from now.
            self.ledger.expiry.used(zone, chunk_ids)
            for chunk_id, seconds in zip(chunk_ids, unused_for[len(unused_for) - granted :], strict=True):
                self.ledger.expiry.kept(zone, [chunk_id], self.ledger.now - seconds)
        return chunk_ids, self._useless.after_evictions(evicted)

    # Configs and time

    def apply(self, config: RuntimeConfig, now: float) -> list[int]:
        """Apply the tier shares of a new config of the engine's zones; returns the chunks that were given up.

        Purges in the config are complete when this returns: purged chunks in transfer can't be found any more either.
        """
        return [chunk_id for _, chunk_ids in self.apply_in_parts(config, now, ALL) for chunk_id in chunk_ids]

    def apply_in_parts(self, config: RuntimeConfig, now: float, at_once: int) -> Iterator[tuple[Zone, list[int]]]:
        """Apply a config like `apply`, but in parts, between which chunks may be stored, loaded and evicted.

        Args:
            config: config of the engine's zones.
            now: current time in seconds.
            at_once: maximum number of chunks given up in one part.

        Yields:
            A zone and those of its chunks that were given up.
        """
        self.admission.follow(config)
        enforcement = self.tenancy.enforcement
        plan = enforcement.plan(tier_config(config, self.name, self.chunk_bytes))
        enforcement.begin(plan, now)
        changes, begun = enforcement.changes(plan), None
        for zone, chunk_ids in enforcement.make(changes, at_once):
            if zone.purge is not begun and zone.purge is not None and purging.is_under_way(zone):
                begun = zone.purge
                begun.withdrawn = self._transfers.withdrawn(zone)
            yield zone, self._useless.after_evictions([(zone, chunk_ids)])
        for zone, chunk_ids in enforcement.end(plan):
            yield zone, self._useless.after_evictions([(zone, chunk_ids)])

    def upkeep(self, now: float) -> list[int]:
        """Advance the timers of zones, loans and chunks; returns the chunks that were given up."""
        return list(chain.from_iterable(self.upkeep_in_parts(now, ALL)))

    def upkeep_in_parts(self, now: float, at_once: int) -> Iterator[list[int]]:
        """Advance the timers like `upkeep`, but generate the given-up chunks in parts of at most ``at_once``."""
        for evicted in self.tenancy.upkeep_in_parts(now, lambda: self.free, at_once):
            yield self._useless.after_evictions(evicted)

    def evict_all(self, at_once: int = ALL) -> Iterator[list[int]]:
        """Give up all chunks that are not in transfer, and generate them in parts of at most ``at_once``."""
        for zone in list(self.ledger.zones.values()):
            while zone.cached:
                evicted = self.ledger.evict(zone, min(len(zone.cached), at_once), "reset")
                yield self._useless.after_evictions([(zone, evicted)])

    def reset(self) -> None:
        """Give up all chunks, including chunks in transfer. The ends of their transfers must not be reported later."""
        for chunk_id, transfer in self._transfers.take_all().items():
            self.ledger.release(transfer.zone, [], [chunk_id])
        self.links.clear()
        for zone in list(self.ledger.zones.values()):
            self._useless.after_evictions([(zone, self.ledger.evict(zone, len(zone.cached), "reset"))])

    def check(self) -> None:
        """Check that each chunk is counted once, by going through all chunks.

        Raises:
            AssertionError: the tier's counts are inconsistent.
        """
        self.ledger.check(self.free, self.chunk_count)
        self.admission.check(self.ledger.zones.values())
        self._transfers.check(self.ledger.zones.values())
        self.links.check()
        assert all(self.ledger.owner[chunk_id] is not None for chunk_id in self.links), "a free chunk is linked"

"""The ledger: which zone owns which block.

A block is free, or owned by one zone: in use (a request refers to it) or cached (no request does, but its prefix is
kept). Each method is one transition, and keeps the totals of all zones (``totals``) up to date.

When the first zone is declared, earlier requests get a zone of their own, and their cached blocks are freed.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from tenantzone_contract.reports.words import EvictionReason, WaitReason
from tenantzone_runtime.zones.audit.trail import Trail
from tenantzone_runtime.zones.blocks.expiry import Expiry
from tenantzone_runtime.zones.blocks.overflow import Overflow
from tenantzone_runtime.zones.blocks.totals import Totals
from tenantzone_runtime.zones.eviction_policies.order import Links
from tenantzone_runtime.zones.model import quota
from tenantzone_runtime.zones.model.counters import Beneficiary
from tenantzone_runtime.zones.model.zone import Zone, ZoneSpec


class Ledger:
    """The block ownership of one engine, with its zones.

    Args:
        block_count: block ids run from 0 to ``block_count - 1``.
        now: current time in seconds of any monotonic clock.
        capacity: number of blocks that requests can use, or None for all.
        lends_cache: whether quiet zones also lend the blocks that they keep cached within their reservations.
    """

    def __init__(
        self, block_count: int, now: float = 0.0, capacity: int | None = None, *, lends_cache: bool = True
    ) -> None:
        self.owner: list[Zone | None] = [None] * block_count
        self.links = Links(block_count)
        """Links between cached blocks, which all zones' eviction orders share."""
        self.zones: dict[str, Zone] = {}
        """Zones by tenant. Zones that left the config stay here until their last request ends."""
        self.totals = Totals(block_count if capacity is None else capacity, lends_cache=lends_cache)
        self.trail = Trail()
        self.overflow = Overflow()
        self.expiry = Expiry(block_count)
        self.now = now
        """Current time, which the callers keep up to date. Block-seconds are counted with it."""
        self.cached_blocks = 0
        self.held_blocks = 0
        self._soiled: dict[int, str] = {}
        """Free blocks that must be zeroed before another tenant uses them, with the tenant whose data they contain."""
        self._to_scrub: list[int] = []
        self.unscrubbed: Counter[str] = Counter()
        """Number of free blocks that must be zeroed, by the tenant whose data they contain."""
        self._zones_entered = 0
        self.departures: list[Callable[[Zone], None]] = [self.expiry.forget]
        """Callbacks that are called with each discarded zone, to remove state that is kept for it across steps."""

    def add(self, zone: Zone) -> None:
        """Enter a zone that holds nothing yet."""
        assert zone.spec.tenant not in self.zones, "the tenant has a zone already"
        assert zone.held == 0
        self._zones_entered += 1
        zone.number = self._zones_entered
        self.zones[zone.spec.tenant] = zone
        self.totals.enter(zone)
        self.expiry.follow(zone, self.now)
        self.overflow.place(zone)

    def discard(self, zone: Zone) -> None:
        """Remove a zone that holds nothing any more."""
        assert zone.held == 0, "a zone with blocks can't be discarded"
        self.totals.leave(zone)
        self.overflow.remove(zone)
        del self.zones[zone.spec.tenant]
        for forget in self.departures:
            forget(zone)

    def is_present(self, zone: Zone) -> bool:
        """Whether the zone is still its tenant's current zone."""
        return self.zones.get(zone.spec.tenant) is zone

    def take(self, zone: Zone, block_ids: list[int]) -> None:
        """Allocate free blocks to the zone; they are in use from now on."""
        self.accrue(zone)
        owner = self.owner
        count = 0
        for block_id in block_ids:
            assert owner[block_id] is None, f"block {block_id} has an owner already"
            owner[block_id] = zone
            count += 1
        if self._soiled:
            self._clean(block_ids, zone.spec.tenant)
        zone.in_use += count
        self.held_blocks += count
        surplus_before = zone.surplus
        self.totals.reckon(zone)
        if count and zone.name_in_journal is not None:
            above_reservation = zone.surplus - surplus_before
            self.trail.granted(zone.spec.tenant, count, above_reservation=above_reservation, held=zone.held)

    def reuse(self, zone: Zone, block_ids: Sequence[int]) -> None:
        """Use cached blocks of the zone again, after a prefix hit."""
        count = zone.cached.hit(block_ids)
        self.expiry.used(zone, block_ids)
        zone.in_use += count
        self.cached_blocks -= count
        self.totals.reckon(zone)

    def release(self, zone: Zone, kept: Sequence[int], dropped: list[int]) -> None:
        """Release blocks that no request uses any more. ``kept`` blocks become cached, and ``dropped`` blocks free."""
        self.accrue(zone)
        kept_count = zone.cached.keep(kept)
        since, now = self.links.since, self.now
        for block_id in kept:
            since[block_id] = now
        self.expiry.kept(zone, kept, self.now)
        zone.cached.drop(dropped)
        self._disown(zone, dropped)
        zone.in_use -= kept_count + len(dropped)
        assert zone.in_use >= 0, f"zone {zone.spec.tenant} releases more than it uses"
        self.cached_blocks += kept_count
        self.held_blocks -= len(dropped)
        if dropped and zone.name_in_journal is not None:
            self.trail.released(zone.spec.tenant, len(dropped), held=zone.held)
        self.totals.reckon(zone)

    def evict(self, zone: Zone, count: int, reason: EvictionReason, beneficiary: Zone | None = None) -> list[int]:
        """Evict the next ``count`` cached blocks of the zone, for a beneficiary or for none; returns their ids."""
        self.accrue(zone)
        block_ids = zone.cached.evict(count)
        self._count_evicted(zone, block_ids, reason, beneficiary)
        return block_ids

    def evict_block(self, zone: Zone, block_id: int, reason: EvictionReason) -> None:
        """Evict the given cached block."""
        self.evict_blocks(zone, [block_id], reason)

    def evict_blocks(self, zone: Zone, block_ids: list[int], reason: EvictionReason) -> None:
        """Evict the given cached blocks."""
        self.accrue(zone)
        for block_id in block_ids:
            zone.cached.remove(block_id)
        self._count_evicted(zone, block_ids, reason, None)

    def evict_expired(self, zone: Zone, at_most: int) -> list[int]:
        """Evict at most ``at_most`` blocks that were unused for the zone's TTL; returns their ids."""
        self.accrue(zone)
        block_ids = self.expiry.expired(zone, self.now, at_most)
        self.evict_blocks(zone, block_ids, "ttl")
        return block_ids

    def change_spec(self, zone: Zone, spec: ZoneSpec) -> None:
        """Replace a zone's spec; its blocks stay."""
        self.totals.change_spec(zone, spec)
        self.expiry.follow(zone, self.now)

    def _count_evicted(
        self, zone: Zone, block_ids: list[int], reason: EvictionReason, beneficiary: Zone | None
    ) -> None:
        if not block_ids:
            return
        self._disown(zone, block_ids)
        self.expiry.used(zone, block_ids)
        count = len(block_ids)
        self.cached_blocks -= count
        self.held_blocks -= count
        evictions, key = zone.counters.evictions, (reason, _class_of(zone, beneficiary))
        evictions[key] = evictions.get(key, 0) + count
        if zone.name_in_journal is not None:
            tenant = None if beneficiary is None else beneficiary.name_in_journal
            self.trail.evicted(zone.spec.tenant, count, reason, tenant, held=zone.held)
        self.totals.reckon(zone)

    def take_blocks_to_scrub(self) -> list[int]:
        """Returns the blocks that passed to another tenant since the last call. They must be zeroed before use."""
        blocks, self._to_scrub = self._to_scrub, []
        return blocks

    def _disown(self, zone: Zone, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.owner[block_id] = None
        if zone.spec.scrub:
            self._soiled.update(dict.fromkeys(block_ids, zone.spec.tenant))
            self.unscrubbed[zone.spec.tenant] += len(block_ids)

    def _clean(self, block_ids: list[int], tenant: str) -> None:
        for block_id in block_ids:
            former = self._soiled.pop(block_id, None)
            if former is None:
                continue
            self.unscrubbed[former] -= 1
            if not self.unscrubbed[former]:
                # The entries of former tenants would accumulate otherwise.
                del self.unscrubbed[former]
            if former != tenant:
                self._to_scrub.append(block_id)
                if former in self.zones:
                    self.zones[former].counters.scrubbed_blocks += 1

    def accrue(self, zone: Zone) -> None:
        """Update the zone's block-seconds; to be called before its number of held, lent or borrowed blocks changes."""
        elapsed = self.now - zone.accrued_until
        if elapsed:
            counters = zone.counters
            counters.block_seconds += zone.held * elapsed
            if zone.lent:
                counters.lent_block_seconds += zone.lent * elapsed
            if zone.borrowed:
                counters.borrowed_block_seconds += zone.borrowed * elapsed
            zone.accrued_until = self.now

    def wait_reason(self, zone: Zone, count: int, free: int, peak: int = 0) -> WaitReason:
        """Returns why a request of the zone, of at most ``peak`` blocks, may not take ``count`` blocks now."""
        return quota.wait_reason(zone.spec.quota, zone.in_use, count, peak=peak, free=free, cached=self.cached_blocks)

    def update_reported(self, zone: Zone) -> bool:
        """Update ``usage_reported``; returns whether the zone has used more than was last reported.

        A zone without a name in the journal is not reported.
        """
        if zone.name_in_journal is None:
            return False
        self.accrue(zone)
        counters = zone.counters
        used = (
            counters.block_seconds,
            counters.prompt_tokens,
            counters.prefix_hit_tokens,
            counters.generation_tokens,
            counters.computed_first_tokens,
            counters.recomputed_tokens,
            counters.rejected_draft_tokens,
            counters.loaded_tokens,
            counters.hit_tokens,
        )
        if used == zone.usage_reported:
            return False
        zone.usage_reported = used
        return True

    def check(self, free: int, capacity: int) -> None:
        """Check invariant I1 by going through all blocks: every block is counted once, and the sums are right.

        Raises:
            AssertionError: the ledger is inconsistent.
        """
        owned: dict[Zone, int] = {}
        for owner in self.owner:
            if owner is not None:
                owned[owner] = owned.get(owner, 0) + 1
        zones = list(self.zones.values())
        for zone in zones:
            assert owned.pop(zone, 0) == zone.held, f"zone {zone.spec.tenant}: owners and counts differ"
            assert all(self.owner[block_id] is zone for block_id in zone.cached)
            assert len(list(zone.cached)) == len(zone.cached), (
                f"zone {zone.spec.tenant}: the eviction order lacks cached blocks"
            )
        assert not owned, "blocks are owned by a zone that is not in the ledger"
        assert self.held_blocks == sum(zone.held for zone in zones)
        assert self.cached_blocks == sum(len(zone.cached) for zone in zones)
        self.totals.check(zones)
        assert free + self.held_blocks == capacity, "the counts do not add up to the capacity"


def _class_of(victim: Zone, beneficiary: Zone | None) -> Beneficiary:
    if beneficiary is None:
        return "none"
    if beneficiary is victim:
        return "self"
    difference = beneficiary.spec.priority - victim.spec.priority
    return "higher_priority" if difference > 0 else "lower_priority" if difference < 0 else "same_priority"

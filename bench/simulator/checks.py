"""Invariants that must hold whenever blocks are allocated and freed.

They are computed from what zones hold and were promised, not from the core's own sums.

I1 every block has one place and the counts add up; I2 a zone gets its reservation within one step; I3 no zone holds
more than its limit; I4 a request's blocks are its own zone's; I5 a hit never crosses zones; I6 nothing in use is
evicted; I7 no zone is cut below its reservation for another's surplus. Invariants of a whole engine after a step are in
``inspection``.
"""

from bench.simulator.fairness import Fairness
from bench.simulator.request import Request
from tenantzone_runtime.zones.eviction import Evictions
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.loan import may_borrow
from tenantzone_runtime.zones.zone import Zone


class Violation(AssertionError):
    """The core broke a promise."""


class Checks:
    """Watches one engine; its methods are called where something happens.

    Raises:
        Violation: from each method; the simulation adds where and when.
    """

    def __init__(self) -> None:
        self.fairness = Fairness()

    def submitted(self, request: Request) -> None:
        self.fairness.learn(request.prompt_tokens, request.output_tokens)

    def hit(self, zone: Zone, hits: list[int], ledger: Ledger) -> None:
        """I5."""
        for block_id in hits:
            demand(ledger.owner[block_id] is zone, "I5", zone, f"hit block {block_id} of another zone")

    def room_made(self, beneficiary: Zone, count: int, evictions: Evictions, *, growing: bool) -> None:
        """I7 and the order of eviction: blocks evicted for one zone were not promised to another.

        A request that grows may take what others merely cache above their reservations.
        """
        quota = beneficiary.spec.quota
        entitled = beneficiary.in_use + count <= quota.reserved
        for victim, block_ids in evictions:
            if victim is beneficiary or not block_ids:
                continue
            text = f"left with {victim.held} blocks after {len(block_ids)} went to zone {beneficiary.spec.tenant}"
            may_give = entitled or growing or victim.quiet
            demand(may_give, "I7", victim, f"active, and gave cache to another's surplus; {text}")
            demand(victim.held >= _kept(victim, beneficiary, entitled=entitled), "I7", victim, text)

    def enough(self, zone: Zone, count: int, free: int) -> None:
        """Blocks that may be taken can be taken."""
        demand(free >= count, "I2", zone, f"may take {count} blocks, but only {free} could be made free")

    def taken(self, request: Request, count: int, free: int, ledger: Ledger, *, growing: bool) -> None:
        """I3 and I7: blocks taken above a reservation leave obtainable what is promised to others."""
        zone = request.zone
        quota = zone.spec.quota
        demand(zone.in_use <= max(quota.limit, request.peak), "I3", zone, f"took {count} blocks, beyond its limit")
        if zone.in_use <= quota.reserved:
            return
        obtainable, owed = free + len(zone.cached), 0
        for other in ledger.zones.values():
            if other is zone:
                continue
            held = other.in_use + len(other.cached)
            kept = _kept(other, zone, entitled=False) if other.quiet else other.spec.quota.reserved
            if held < kept:
                owed += kept - held
            elif other.quiet or growing:
                obtainable += min(len(other.cached), held - kept)
        demand(
            obtainable >= owed,
            "I7",
            zone,
            f"took {count} blocks above its reservation; {obtainable} are obtainable, {owed} are promised to others",
        )

    def evicted(self, zone: Zone, block_ids: list[int], references: list[int]) -> None:
        """I6."""
        for block_id in block_ids:
            demand(not references[block_id], "I6", zone, f"block {block_id} was evicted while in use")

    def given_up(self, evictions: Evictions) -> None:
        """I7 for evictions in the background, and for surplus reclaim."""
        for zone, block_ids in evictions:
            kept = zone.held >= zone.spec.quota.reserved or not zone.requests
            demand(kept or not block_ids, "I7", zone, f"active, and left with {zone.held} blocks")

    def preempted(self, zone: Zone, reason: str, beneficiary: Zone | None) -> None:
        """I7 for running requests, which still hold their blocks."""
        if beneficiary is not zone:
            above = zone.in_use > zone.spec.quota.reserved
            demand(above, "I7", zone, f"was preempted within its reservation, reason {reason}")

    def failed(self, request: Request, count: int, error: str, ledger: Ledger, capacity: int) -> None:
        """A request that is given up on could not have its blocks even without other zones."""
        zone = request.zone
        kept = sum(_kept_while_quiet(other, zone) for other in ledger.zones.values() if other is not zone)
        quota = zone.spec.quota
        reachable = min(max(quota.limit, request.peak), max(quota.reserved, capacity - kept))
        demand(count > reachable, "lost", zone, f"could have had {reachable} blocks, and yet: {error}")


def demand(holds: bool, invariant: str, zone: Zone, text: str) -> None:
    """State that something holds for a zone.

    Raises:
        Violation: it does not.
    """
    if not holds:
        raise Violation(f"{invariant}: zone {zone.spec.tenant} {text}")


def _kept(owner: Zone, beneficiary: Zone, *, entitled: bool) -> int:
    """Blocks of its reservation that a zone keeps from another one now."""
    quota = owner.spec.quota
    if owner.quiet and entitled:
        return quota.reserved - quota.lendable
    return _kept_while_quiet(owner, beneficiary) if owner.quiet else quota.reserved


def _kept_while_quiet(owner: Zone, beneficiary: Zone) -> int:
    quota = owner.spec.quota
    return quota.reserved - quota.lendable if may_borrow(beneficiary, owner) else quota.reserved

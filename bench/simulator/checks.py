"""Invariants that must hold whenever blocks are allocated and freed.

They are computed from each zone's blocks and reservation, not from the core's own sums.

I1: every block is in exactly one state, and the counts add up. I2: a zone gets its reservation within one step. I3: no
zone holds more blocks than its limit. I4: a request's blocks belong to its own zone. I5: a request never hits blocks of
another zone. I6: no block in use is evicted. I7: no zone loses blocks of its reservation so that another zone can
exceed its own. Invariants of a whole engine after a step are in ``inspection``.
"""

from bench.simulator.fairness import Fairness
from bench.simulator.request import Request
from tenantzone_runtime.zones.blocks.eviction import Evictions
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.blocks.loan import may_borrow
from tenantzone_runtime.zones.model.zone import Zone


class Violation(AssertionError):
    """The core violated an invariant."""


class Checks:
    """Checks one engine; the simulation calls a method for each kind of event.

    Raises:
        Violation: each method raises it; the simulation adds the seed, step and time.
    """

    def __init__(self) -> None:
        self.fairness = Fairness()

    def submitted(self, request: Request) -> None:
        self.fairness.learn(request.prompt_tokens, request.output_tokens)

    def hit(self, zone: Zone, hits: list[int], ledger: Ledger) -> None:
        """Check I5: the hit blocks belong to the zone."""
        for block_id in hits:
            demand(ledger.owner[block_id] is zone, "I5", zone, f"hit block {block_id} of another zone")

    def room_made(self, beneficiary: Zone, count: int, evictions: Evictions, *, growing: bool) -> None:
        """Check I7 and the order of eviction: blocks evicted for one zone were not reserved for another zone.

        A request that grows may take blocks that other zones only cache above their reservations.
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
        """Check that blocks which a zone may take are available."""
        demand(free >= count, "I2", zone, f"may take {count} blocks, but only {free} could be made free")

    def taken(self, request: Request, count: int, free: int, ledger: Ledger, *, growing: bool) -> None:
        """Check I3 and I7: after blocks were taken above a reservation, other zones can still get theirs."""
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
        """Check I6: the evicted blocks were not in use."""
        for block_id in block_ids:
            demand(not references[block_id], "I6", zone, f"block {block_id} was evicted while in use")

    def given_up(self, evictions: Evictions) -> None:
        """Check I7 for evictions in the background and for surplus reclaim."""
        for zone, block_ids in evictions:
            kept = zone.held >= zone.spec.quota.reserved or not zone.requests
            demand(kept or not block_ids, "I7", zone, f"active, and left with {zone.held} blocks")

    def preempted(self, zone: Zone, reason: str, beneficiary: Zone | None) -> None:
        """Check I7 for preempted requests, which still hold their blocks."""
        if beneficiary is not zone:
            above = zone.in_use > zone.spec.quota.reserved
            demand(above, "I7", zone, f"was preempted within its reservation, reason {reason}")

    def failed(self, request: Request, count: int, error: str, ledger: Ledger, capacity: int) -> None:
        """Check that a failed request could not have got its blocks even without requests of other zones."""
        zone = request.zone
        kept = sum(_kept_while_quiet(other, zone) for other in ledger.zones.values() if other is not zone)
        quota = zone.spec.quota
        reachable = min(max(quota.limit, request.peak), max(quota.reserved, capacity - kept))
        demand(count > reachable, "lost", zone, f"could have had {reachable} blocks, and yet: {error}")


def demand(holds: bool, invariant: str, zone: Zone, text: str) -> None:
    """Raise an error unless an invariant holds for a zone.

    Raises:
        Violation: the invariant does not hold.
    """
    if not holds:
        raise Violation(f"{invariant}: zone {zone.spec.tenant} {text}")


def _kept(owner: Zone, beneficiary: Zone, *, entitled: bool) -> int:
    """Returns the number of reserved blocks that a zone currently withholds from another zone."""
    quota = owner.spec.quota
    if owner.quiet and entitled:
        return quota.reserved - quota.lendable
    return _kept_while_quiet(owner, beneficiary) if owner.quiet else quota.reserved


def _kept_while_quiet(owner: Zone, beneficiary: Zone) -> int:
    quota = owner.spec.quota
    return quota.reserved - quota.lendable if may_borrow(beneficiary, owner) else quota.reserved

"""What must hold in every step, worked out from what zones hold and were promised, not from the core's own sums.

The names I1 to I7 are those of the invariants: I1 every block has one place and the counts add up; I2 a zone gets its
reservation within one step; I3 nobody holds more than its limit; I4 a request's blocks are its own zone's; I5 a hit
never crosses zones; I6 nothing in use is evicted; I7 nobody is cut below its reservation for another's surplus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.simulator.fairness import Fairness
from bench.simulator.request import Request
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.loans import may_borrow
from tenantzone_runtime.zones.zone import Zone

if TYPE_CHECKING:
    from bench.simulator.engine import Engine
    from tenantzone_runtime.zones.eviction import Evictions

FULL_CHECK_EVERY_STEPS = 500


class Violation(AssertionError):
    """The core broke a promise."""


class Checks:
    """Watches one engine; its methods are called where something happens.

    Raises:
        Violation: from each method; the simulation adds where and when.
    """

    def __init__(self) -> None:
        self.fairness = Fairness()
        self.steps = 0

    def submitted(self, request: Request) -> None:
        self.fairness.learn(request.prompt_tokens, request.output_tokens)

    def hit(self, zone: Zone, hits: list[int], ledger: Ledger) -> None:
        """I5."""
        for block_id in hits:
            _demand(ledger.owner[block_id] is zone, "I5", zone, f"hit block {block_id} of another zone")

    def room_made(self, beneficiary: Zone, count: int, evictions: Evictions) -> None:
        """I7 and the order of eviction: what was evicted for a zone was not promised to somebody else."""
        quota = beneficiary.spec.quota
        entitled = beneficiary.in_use + count <= quota.reserved
        for victim, block_ids in evictions:
            if victim is beneficiary or not block_ids:
                continue
            text = f"left with {victim.held} blocks after {len(block_ids)} went to zone {beneficiary.spec.tenant}"
            _demand(entitled or victim.quiet, "I7", victim, f"active, and gave cache to another's surplus; {text}")
            _demand(victim.held >= _kept(victim, beneficiary, entitled=entitled), "I7", victim, text)

    def enough(self, zone: Zone, count: int, free: int) -> None:
        """What may be taken can be taken."""
        _demand(free >= count, "I2", zone, f"may take {count} blocks, of which only {free} could be made free")

    def taken(self, zone: Zone, count: int, free: int, ledger: Ledger) -> None:
        """I3, and I7: what was taken above a reservation leaves obtainable what is promised to others."""
        quota = zone.spec.quota
        _demand(zone.in_use <= max(quota.limit, zone.grace), "I3", zone, f"took {count} blocks, beyond its limit")
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
            elif other.quiet:
                obtainable += min(len(other.cached), held - kept)
        _demand(
            obtainable >= owed,
            "I7",
            zone,
            f"took {count} blocks above its reservation; {obtainable} are obtainable, {owed} are promised to others",
        )

    def evicted(self, zone: Zone, block_ids: list[int], references: list[int]) -> None:
        """I6."""
        for block_id in block_ids:
            _demand(not references[block_id], "I6", zone, f"block {block_id} was evicted while in use")

    def given_up(self, evictions: Evictions) -> None:
        """I7 for what goes in the background, and for the relief of others."""
        for zone, block_ids in evictions:
            kept = zone.held >= zone.spec.quota.reserved or not zone.requests
            _demand(kept or not block_ids, "I7", zone, f"active, and left with {zone.held} blocks")

    def denied(self, zone: Zone, count: int) -> None:
        """I2: a request was refused blocks after all who may yield have yielded."""
        entitled = zone.in_use + count <= zone.spec.quota.reserved
        _demand(not entitled, "I2", zone, f"was denied {count} blocks within its reservation")

    def preempted(self, zone: Zone, reason: str, beneficiary: Zone | None) -> None:
        """I7 for running requests."""
        if beneficiary is not zone:
            above = zone.in_use > zone.spec.quota.reserved
            _demand(above, "I7", zone, f"was preempted within its reservation, reason {reason}")

    def round_ended(self, engine: Engine, *, exhausted: bool) -> None:
        """Each zone was asked if there was room for more, and those that wait got even service."""
        waiting = engine.waiting
        if exhausted:
            for request in waiting.fronts():
                zone = request.zone
                assert zone is not None
                _demand(zone.account in waiting.asked, "I2", zone, "waits, and was not even looked at")
        accounts = [account for account in waiting.accounts() if account not in waiting.refused]
        model = engine.model
        unfair = self.fairness.round_ended(accounts, engine_blocks=model.capacity, max_running=model.max_running)
        if unfair:
            raise Violation(f"fairness: {unfair}")

    def after_step(self, engine: Engine) -> None:
        """The cheap checks, and the whole books now and then."""
        self.steps += 1
        ledger, free = engine.ledger, len(engine.pool.free)
        held = 0
        for zone in ledger.zones.values():
            zone_held = zone.in_use + len(zone.cached)
            held += zone_held
            if zone_held > max(zone.spec.quota.limit, zone.in_use):
                raise Violation(f"I3: zone {zone.spec.tenant} holds {zone_held} blocks, {zone.in_use} of them in use")
        if not held == ledger.held_blocks == engine.model.capacity - free:
            raise Violation(f"I1: {held} blocks are held, {ledger.held_blocks} by the ledger's count, {free} are free")
        owner = ledger.owner
        for request in engine.running:
            if any(owner[block_id] is not request.zone for block_id in request.blocks):
                raise Violation(f"I4: request {request.number} of {request.tenant} uses a block of another zone")
        if self.steps % FULL_CHECK_EVERY_STEPS == 0:
            self.full(engine)

    def full(self, engine: Engine) -> None:
        """Everything, the slow way."""
        pool, ledger = engine.pool, engine.ledger
        try:
            ledger.check(len(pool.free), 0, engine.model.capacity)
        except AssertionError as error:
            raise Violation(f"I1: {error or 'the sums are not what the parts add up to'}") from error
        if len(set(pool.free)) != len(pool.free) or any(ledger.owner[block_id] is not None for block_id in pool.free):
            raise Violation("I1: the free list holds a block twice, or one that has an owner")
        references = [0] * engine.model.capacity
        for request in engine.running:
            for block_id in request.blocks:
                references[block_id] += 1
        if references != pool.references:
            raise Violation("I1: reference counts are not what the running requests add up to")
        for zone in ledger.zones.values():
            requests = sum(1 for each in [*engine.running, *engine.waiting] if each.zone is zone)
            _demand(requests == zone.requests, "I1", zone, f"counts {zone.requests} requests where {requests} are")
            _demand(all(not references[block_id] for block_id in zone.cached), "I6", zone, "caches a block in use")


def _kept(owner: Zone, beneficiary: Zone, *, entitled: bool) -> int:
    """Blocks of its reservation that a zone keeps from another one now."""
    quota = owner.spec.quota
    lends = owner.quiet and (entitled or may_borrow(beneficiary, owner))
    return quota.reserved - quota.lendable if lends else quota.reserved


def _demand(holds: bool, invariant: str, zone: Zone, text: str) -> None:
    if not holds:
        raise Violation(f"{invariant}: zone {zone.spec.tenant} {text}")

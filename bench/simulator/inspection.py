"""Checks invariants of a whole engine after each step, and of its admission decisions.

The invariants are those of ``checks``, and two about waiting. Entitled: a zone that was denied blocks within its
reservation gets them in the next step. Backed off: a zone that is skipped because its next request was denied could not
have been served anyway. Both are checked without the core's record of backed-off zones.
"""

from collections import Counter

from bench.simulator.checks import Checks, Violation, demand
from bench.simulator.engine import Engine
from bench.simulator.request import Request
from tenantzone_contract.reports.words import WaitReason
from tenantzone_runtime.zones.model.zone import Zone


class Inspection:
    """Checks an engine once during each step and once after it.

    Args:
        checks: the checks whose fairness is measured.
        full_every: the number of steps between two full checks.

    Raises:
        Violation: each method that checks raises it; the simulation adds the seed, step and time.
    """

    def __init__(self, checks: Checks, full_every: int) -> None:
        self.steps = 0
        self.waits: Counter[WaitReason] = Counter()
        """Number of steps in which a zone's next request waited for blocks, by reason."""
        self.fairness = checks.fairness
        self._full_every = full_every
        self._owed: set[tuple[Request, int]] = set()
        """Requests that were denied blocks within their zone's reservation, with the number of earlier preemptions."""

    def forget(self) -> None:
        """Forget the state of the old engine after a restart."""
        self.fairness.forget()
        self._owed = set()

    def after_schedule(self, engine: Engine) -> None:
        """Check the engine after it has decided the requests of this step."""
        self.steps += 1
        accounts = []
        for zone in engine.waiting.zones():
            if zone.wait_reason is not None:
                self.waits[zone.wait_reason] += 1
            if not zone.backoff_ticket:
                accounts.append(zone.account)
        model = engine.model
        unfair = self.fairness.after_step(accounts, engine_blocks=model.capacity, max_running=model.max_running)
        if unfair:
            raise Violation(f"fairness: {unfair}")
        self._check_entitled(engine)
        if self.steps % self._full_every == 0 and engine.is_exhausted:
            for zone in engine.waiting.zones():
                demand(
                    not zone.backoff_ticket or not _is_admissible(engine, zone), "backed off", zone, "could be admitted"
                )

    def after_step(self, engine: Engine) -> None:
        """Run the cheap checks, and in some steps the full check."""
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
        if self.steps % self._full_every == 0:
            self.full(engine)

    def full(self, engine: Engine) -> None:
        """Check everything by counting all blocks, which is slow."""
        pool, ledger = engine.pool, engine.ledger
        try:
            ledger.check(len(pool.free), engine.model.capacity)
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
        requests = Counter(each.zone for each in [*engine.running, *engine.waiting])
        for zone in ledger.zones.values():
            count = requests[zone]
            demand(count == zone.requests, "I1", zone, f"counts {zone.requests} requests where {count} are")
            demand(all(not references[block_id] for block_id in zone.cached), "I6", zone, "caches a block in use")

    def _check_entitled(self, engine: Engine) -> None:
        """Check I2: a zone that was denied blocks within its reservation gets them one step later."""
        denied = [(request, engine.blocks_to_continue(request)) for request in engine.passed_over]
        if engine.is_exhausted:
            # Otherwise waiting requests may wait for a seat or for their turn, not for blocks.
            fronts = [engine.front(zone) for zone in engine.waiting.zones() if zone.is_entitled_to(1)]
            denied += [(request, engine.blocks_to_admit(request)) for request in fronts]
        before, self._owed = self._owed, set()
        for request, count in denied:
            if request.zone.is_entitled_to(count):
                key = request, request.preemptions
                demand(key not in before, "I2", request.zone, f"was denied {count} blocks within its reservation twice")
                self._owed.add(key)


def _is_admissible(engine: Engine, zone: Zone) -> bool:
    """Returns whether a zone's next request could get its blocks now, including blocks that other zones only cache."""
    request, totals, free = engine.front(zone), engine.ledger.totals, engine.free_blocks
    count = engine.blocks_to_admit(request)
    headroom = engine.headroom if engine.running else 0
    if count + headroom > free + engine.ledger.cached_blocks and not zone.is_entitled_to(count):
        return False
    if count <= totals.takeable(zone, free, peak=request.peak):
        return True
    missing = count - totals.spare(zone, free)
    return totals.may_reclaim_surplus(zone, count, request.peak) and missing <= totals.surplus_cached_elsewhere(zone)

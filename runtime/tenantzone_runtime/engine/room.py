"""Makes room before a step: what a zone is entitled to, and others' requests stand on, is freed by preempting those.

vLLM's own preemption, in the midst of a step, takes whoever came last, whoever that belongs to. With room made before,
it is not reached for a zone that is entitled to its blocks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.demand import Demand
from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.zones import preemption
from tenantzone_runtime.zones.audit import PreemptionReason
from tenantzone_runtime.zones.zone import Zone

if TYPE_CHECKING:
    from tenantzone_runtime.engine.scheduling import ZoneAwareScheduler


class RoomMaker:
    """Chooses who yields, and sends them back to wait.

    Args:
        scheduler: whose requests.
        demand: how many blocks they ask for.
    """

    def __init__(self, scheduler: ZoneAwareScheduler, demand: Demand) -> None:
        self._scheduler = scheduler
        self._demand = demand
        self._tenancy = scheduler.tenancy
        self._starved: Request | None = None
        """A running request that was refused blocks in the last step."""
        self._misjudged: Request | None = None
        """A waiting request that was refused blocks in the last step, although it seemed admissible."""
        self._because: tuple[PreemptionReason, Zone | None] | None = None
        """Why a request is being preempted, and for whom; None while vLLM does it on its own account."""

    def remember(self, refused: Request | None) -> None:
        """A running request that was refused blocks is helped before the next step; a waiting one sits that out."""
        if refused is None:
            return
        if refused.status == RequestStatus.RUNNING:
            self._starved = refused
        else:
            self._misjudged = refused

    def make(self) -> None:
        """To be called before each step."""
        for borrower in self._tenancy.past_grace():
            self._take_back(borrower)
        starved, self._starved = self._starved, None
        if starved is not None and starved.status == RequestStatus.RUNNING:
            self._help(starved)
        for request in self._scheduler.waiting.fronts():
            zone = zone_of(request)
            if zone is None or zone.in_use >= zone.spec.quota.reserved:
                continue
            count = self._scheduler.denied_blocks(request, zone)
            if count > 0 and preemption.is_entitled(zone, count):
                self._reclaim(request, zone, count)
            if count > self._scheduler.block_pool.available_to(zone):
                # The step itself may not get to the zone; that its reservation is not there must show all the same.
                self._tenancy.must_wait(zone, count, self._scheduler.block_pool.free_block_queue.num_free_blocks)
        misjudged, self._misjudged = self._misjudged, None
        if misjudged is not None and not misjudged.is_finished():
            if zone_of(misjudged) is None:
                self.relieve(None, self._demand.to_admit(misjudged))
            else:
                self._scheduler.waiting.set_aside(zone_of(misjudged))

    def relieve(self, zone: Zone | None, count: int) -> bool:
        """Evict what other active zones merely cache, if the zone may have it. Returns whether that is enough."""
        pool = self._scheduler.block_pool
        pool.return_all_evicted(self._tenancy.relieve(zone, count, pool.free_block_queue.num_free_blocks))
        return pool.available_to(zone) >= count

    def note_preemption(self, victim: Request) -> None:
        """A request was preempted, by whomever."""
        zone, refused = zone_of(victim), self._scheduler.kv_cache_manager.refused
        if self._because is not None:
            reason, beneficiary = self._because
        elif refused is not None:
            beneficiary = zone_of(refused)
            reason = "own" if beneficiary is zone else "reclaim"
        else:
            reason, beneficiary = "reset", None
        if zone is not None:
            zone.counters.preemptions += 1
        names = [None if each is None else each.spec.tenant for each in (zone, beneficiary)]
        self._tenancy.ledger.trail.preempted(names[0], reason, names[1])

    def _take_back(self, borrower: Zone) -> None:
        """Preempt requests of a zone until it stands on no loan that is past its grace."""
        scheduler, pool = self._scheduler, self._scheduler.block_pool
        while borrower in self._tenancy.past_grace():
            index = preemption.youngest(map(zone_of, scheduler.running), borrower)
            if index is None:
                return
            self.preempt(scheduler.running[index], "due", None)
            pool.return_all_evicted(self._tenancy.collect_due(pool.free_block_queue.num_free_blocks))

    def _help(self, starved: Request) -> None:
        """Let others yield to a running request that gets no blocks, or let it wait itself."""
        zone, count = zone_of(starved), self._demand.to_continue(starved)
        growing = self._scheduler.kv_cache_manager.is_growing(starved)
        self._reclaim(starved, zone, count, growing=growing)
        pool = self._scheduler.block_pool
        if starved.status == RequestStatus.RUNNING and pool.available_to(zone, growing=growing) < count:
            # vLLM stops at a running request that gets no blocks: those behind it must not wait for it.
            self.preempt(starved, "own", zone)

    def _reclaim(self, request: Request, zone: Zone | None, count: int, *, growing: bool = False) -> None:
        """Preempt running requests until the request's zone may take ``count`` blocks, or nobody may yield."""
        running = self._scheduler.running
        while self._scheduler.block_pool.available_to(zone, growing=growing) < count:
            index = preemption.choose_victim(map(zone_of, running), zone, count)
            if index is None:
                return
            victim = running[index]
            self.preempt(victim, "own" if zone_of(victim) is zone else "reclaim", zone)
            if victim is request:
                return

    def preempt(self, victim: Request, reason: PreemptionReason, beneficiary: Zone | None) -> None:
        """Send a running request back to wait, between two steps."""
        self._scheduler.running.remove(victim)
        self._because = reason, beneficiary
        self._scheduler._preempt_request(victim, time.monotonic())
        self._because = None
        # The worker still has it in its batch of the last step: it may not come back within this one.
        self._scheduler.waiting.set_aside(zone_of(victim))

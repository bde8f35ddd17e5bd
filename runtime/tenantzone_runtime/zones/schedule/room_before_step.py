"""Room for waiting requests before a step: adapter slots, encoder room, and blocks that their zones are entitled to.

A zone that lacks blocks of its reservation is considered before each step, because the step itself considers no zone
while no seat is free.
"""

from itertools import islice
from typing import Generic

from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.seats import candidates
from tenantzone_runtime.zones.schedule.admission import Admission
from tenantzone_runtime.zones.schedule.admission_changes import AdmissionChanges
from tenantzone_runtime.zones.schedule.held_back import HeldBack
from tenantzone_runtime.zones.schedule.prospects import Prospects
from tenantzone_runtime.zones.schedule.waiting_blocks import WaitingBlocks
from tenantzone_runtime.zones.tenancy import Tenancy

_SHORT_AT_ONCE = 16
"""Maximum number of zones that lack reserved blocks and are considered before each step."""


class RoomBeforeStep(Generic[W]):
    """Makes room for the waiting requests of one engine before a step.

    Args:
        tenancy: tenancy with all zones.
        engine: the engine.
        admission: the zones with waiting requests.
        held_back: the running requests that lack blocks.
        prospects: the seats, adapter slots and encoder room.
        blocks: the blocks that waiting requests may have.
        changes: notes that a request need not wait for blocks.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        engine: Engine[W],
        admission: Admission,
        held_back: HeldBack[W],
        prospects: Prospects[W],
        blocks: WaitingBlocks[W],
        changes: AdmissionChanges[W],
    ) -> None:
        self._tenancy = tenancy
        self._engine = engine
        self._admission = admission
        self._held_back = held_back
        self._seats = prospects.seats
        self._slots = prospects.slots
        self._encoder = prospects.encoder
        self._blocks = blocks
        self._changes = changes
        self._short: dict[Zone, None] = {}
        """Zones that lack blocks of their reservation, in the order in which they were considered. Includes zones whose
        next request still waits for something else, and may lack blocks after this wait."""

    def share_adapter_slots(self) -> None:
        """Decide which zones have adapter slots in this step, and reconsider the zones that this affects."""
        if not self._engine.adapter_slots:
            return
        waited = self._slots.waiting
        if self._slots.begin_step(self._admission):
            # If a request that was denied blocks now lacks a slot, too, a later request of its zone may begin instead.
            self._admission.wake_those(lambda zone: not self._slots.blocks_at_most(self._engine.front(zone)))
        waiting = self._slots.waiting
        for zone in waited - waiting:
            if zone.wait_reason == "adapter":
                self._tenancy.may_go_on(zone)
        for zone in waiting:
            if zone.wait_reason is None:
                self._tenancy.must_wait_for_adapter(zone)
        for zone in self._slots.granted:
            self._admission.enter(zone)

    def share_encoder(self) -> None:
        """Decide for which zones room in the encoder is kept in this step."""
        waited = self._encoder.waiting
        self._encoder.begin_step()
        for zone in waited - self._encoder.waiting:
            if zone.wait_reason == "encoder":
                self._tenancy.may_go_on(zone)
        for zone in self._encoder.waiting:
            if zone.wait_reason is None and zone in self._admission:
                self._tenancy.must_wait_for_encoder(zone)

    def reclaim_blocks(self) -> None:
        """Reclaim blocks for waiting requests whose zones are entitled to them, and note which zones must wait."""
        self._admission.wake()
        for zone in list(islice(self._short, _SHORT_AT_ONCE)):
            del self._short[zone]
            if not zone.backoff_ticket:
                self._admission.look_again(zone)
        overlooked = self._blocks.take_overlooked()
        if overlooked is not None:
            self._admission.set_aside(overlooked)
        for zone in self._admission.take_unseen():
            if zone in self._admission.sent_back or self._seats.is_at_limit(zone):
                self._admission.look_again(zone)
            else:
                self._reclaim_blocks_for(zone)

    def _reclaim_blocks_for(self, zone: Zone) -> None:
        # The step skips requests that wait for something else, such as a grammar, so take the first other request.
        front = self._engine.front(zone)
        work, at_most = next(candidates(self._engine, zone, self._slots.blocks_at_most), (front, 0))
        denied = self._blocks.denied(work, at_most)
        # If the request waits because of a running request of its own zone, no request is preempted for it.
        if zone not in self._held_back.zones and self._blocks.reclaim(work, at_most, denied):
            denied = self._blocks.denied(work, at_most)
        if denied is None:
            self._changes.need_not_wait_for_blocks(zone)
        waits_for_else = work is not front or not at_most
        if zone.in_use < zone.spec.quota.reserved and (denied is not None or waits_for_else):
            # Consider the zone again before the next step. The step itself may not reach it, and no event shows when
            # its request no longer waits for something else.
            self._short[zone] = None
            if denied is not None:
                # Record the wait here, so that the missing blocks are visible even if the step doesn't reach the zone.
                self._tenancy.must_wait(zone, denied.blocks, self._engine.free_blocks, work.peak)

    def forget(self, zone: Zone) -> None:
        """Forget a removed zone."""
        self._short.pop(zone, None)

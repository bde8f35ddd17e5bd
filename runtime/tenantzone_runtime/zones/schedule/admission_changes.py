"""What an admission changes: the room made for the admitted request, and the reasons why other zones' requests wait."""

from functools import partial
from typing import Generic

from tenantzone_runtime.zones.blocks import states
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.adapter_slots import AdapterSlots
from tenantzone_runtime.zones.resources.encoder_room import EncoderRoom
from tenantzone_runtime.zones.schedule.admission import Admission
from tenantzone_runtime.zones.schedule.unsatisfiable import Unsatisfiable
from tenantzone_runtime.zones.schedule.waiting_blocks import Denied, WaitingBlocks
from tenantzone_runtime.zones.tenancy import Tenancy


class AdmissionChanges(Generic[W]):
    """Makes the changes that a plan for an admission consists of.

    Args:
        tenancy: tenancy with all zones.
        engine: the engine.
        admission: the zones with waiting requests.
        unsatisfiable: the waiting requests that can never get their blocks.
        blocks: the blocks that waiting requests may have.
        slots: the adapter slots.
        encoder: the room in the encoder.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        engine: Engine[W],
        admission: Admission,
        unsatisfiable: Unsatisfiable[W],
        blocks: WaitingBlocks[W],
        slots: AdapterSlots[W],
        encoder: EncoderRoom[W],
    ) -> None:
        self._tenancy = tenancy
        self._ledger = tenancy.ledger
        self._engine = engine
        self._admission = admission
        self._unsatisfiable = unsatisfiable
        self._blocks = blocks
        self._slots = slots
        self._encoder = encoder

    def begin(self, work: W, denied: Denied | None) -> bool:
        """Make room for a zone's next request, which can be admitted, and note that it need not wait.

        Args:
            work: the request.
            denied: the blocks to get by surplus reclaim; None if none are missing.

        Returns:
            Whether the request has its room. If not, the engine can't use the evicted blocks yet.
        """
        zone = work.zone
        self._admission.serve(zone)
        if not self._slots.may_have(work):
            self._tenancy.must_wait_for_adapter(zone)
            return True
        self._blocks.inherit(work)
        if denied is not None:
            self._blocks.evict_surplus_for(work, denied.blocks)
            still = self._blocks.denied(work, self._engine.blocks_at_most(work))
            if still is not None:
                self._admission.pass_over(zone, partial(self.deny, work, still))
                return False
        self.need_not_wait_for_blocks(zone)
        states.is_served(self._ledger, zone)
        return True

    def deny(self, work: W, denied: Denied) -> None:
        """Note that a zone's next request was denied its blocks."""
        zone = work.zone
        self._blocks.inherit(work)
        self._unsatisfiable.note(work, denied.blocks)
        self._tenancy.must_wait(zone, denied.blocks, self._engine.free_blocks, work.peak)
        if zone.is_entitled_to(denied.blocks):
            # Make room before the next step: in this step, a request to preempt may have been given its tokens already.
            self._admission.look_again(zone)
        else:
            self._admission.back_off(zone, denied.blocks, work.peak, denied.headroom)

    def wait_behind(self, held_back: W) -> None:
        """Note that a zone's next request waits because a running request of the zone lacks blocks.

        Blocks that the zone releases are for its running requests. Otherwise, after the zone's limit was lowered, a
        running request and an older waiting request with a higher peak could keep preempting each other.
        """
        zone, count = held_back.zone, self._engine.blocks_to_continue(held_back)
        self._tenancy.must_wait(zone, count, self._engine.free_blocks, held_back.peak)
        self._admission.look_again(zone)

    def wait_to_begin(self, work: W) -> None:
        """Note that a zone's next request waits for encoder room, or for a prefix that this step computes."""
        if self._engine.can_encode(work):
            self._tenancy.must_wait_for_tokens(work.zone)
        else:
            self._encoder.turned_away(work.zone)
            self._tenancy.must_wait_for_encoder(work.zone)

    def need_not_wait_for_blocks(self, zone: Zone) -> None:
        """Note that a zone's next request need not wait for blocks. It may wait for a slot or encoder room instead."""
        if zone in self._slots.waiting:
            self._tenancy.must_wait_for_adapter(zone)
        elif zone in self._encoder.waiting:
            self._tenancy.must_wait_for_encoder(zone)
        else:
            self._tenancy.may_go_on(zone)

"""Prospects: which waiting requests would begin in the next step if they had the one resource that they lack.

Seats, adapter slots, encoder room and tokens each ask this before a step. The answers change nothing, except that they
spend look-ups of prompts.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Generic

from tenantzone_runtime.zones.audit.events import PreemptionReason
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.adapter_slots import AdapterSlots
from tenantzone_runtime.zones.resources.encoder_room import EncoderRoom
from tenantzone_runtime.zones.resources.seats import Seats, candidates
from tenantzone_runtime.zones.schedule.admission import Admission
from tenantzone_runtime.zones.schedule.held_back import HeldBack
from tenantzone_runtime.zones.schedule.waiting_blocks import WaitingBlocks
from tenantzone_runtime.zones.tenancy import Tenancy


class Prospects(Generic[W]):
    """The prospects of one engine's waiting requests, and the seats, adapter slots and encoder room that they lack.

    Args:
        tenancy: tenancy with all zones.
        engine: the engine.
        admission: the zones with waiting requests.
        held_back: the running requests that lack blocks.
        blocks: the blocks that waiting requests may have.
        preempt: preempts a running request, for a reason and for the benefit of a zone.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        engine: Engine[W],
        admission: Admission,
        held_back: HeldBack[W],
        blocks: WaitingBlocks[W],
        preempt: Callable[[W, PreemptionReason, Zone | None], None],
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._held_back = held_back
        self._blocks = blocks
        ledger = tenancy.ledger
        self.slots = AdapterSlots(engine, ledger, self._has_own_seats, self._has_seat, self._given_a_slot, preempt)
        self.encoder = EncoderRoom(engine, ledger, self._has_own_seats, self._given_encoder_room, preempt)
        self.seats = Seats(ledger.totals, engine, self.slots.blocks_at_most, self._given_a_seat, preempt)

    def _has_own_seats(self, zone: Zone) -> bool:
        return self.seats.reserved(zone) > 0

    def _has_seat(self, zone: Zone) -> bool:
        return self.seats.is_there_one_for(zone)

    # Which requests would begin, given one resource

    def given_tokens(self, zone: Zone) -> Iterator[W]:
        """Generate a zone's waiting requests that would be admitted one after the other now, given enough tokens."""
        if zone.backoff_ticket or zone in self._admission.sent_back or zone in self._held_back.zones:
            return
        waiting = islice(candidates(self._engine, zone, self.slots.blocks_at_most), self.seats.free_for(zone))
        first, count = next(waiting, (None, 0))
        if first is None or not self._engine.can_begin(first):
            return
        denied = self._blocks.denied(first, count)
        if denied is not None and not self._blocks.may_reclaim_surplus(first, denied):
            return
        yield first
        left = self._blocks.available(first) - count
        for work, count in waiting:
            left -= count
            if left < 0:
                return
            yield work

    def _given_a_seat(self, work: W) -> bool:
        """Whether a waiting request most likely begins in this step, given a seat."""
        return (
            work.zone not in self._held_back.zones
            and self._engine.can_begin(work)
            and not self._blocks.denied(work, self.slots.blocks_at_most(work), may_look_up=self.seats.may_look_up)
        )

    def _given_a_slot(self, work: W) -> bool:
        """Whether a waiting request could begin in this step, given a slot for its adapter and a seat."""
        return self._finds_blocks(work, self._engine.blocks_at_most(work)) and self._engine.can_begin(work)

    def _given_encoder_room(self, zone: Zone) -> W | None:
        """Returns a zone's first waiting request if it could begin in this step, given encoder room, else None."""
        if (
            not self._engine.is_open
            or zone not in self._admission
            or zone.backoff_ticket
            or not self.seats.is_there_one_for(zone)
        ):
            return None
        work, at_most = next(candidates(self._engine, zone, self.slots.blocks_at_most), (None, 0))
        return work if work is not None and self._finds_blocks(work, at_most) else None

    def _finds_blocks(self, work: W, at_most: int) -> bool:
        """Whether a waiting request may take the ``at_most`` blocks that it needs, or is entitled to them."""
        zone = work.zone
        if not at_most or zone in self._held_back.zones or self.seats.is_at_limit(zone):
            return False
        return self._blocks.may_be_found(work, at_most)

    # Which zones would have seats

    def zones_with_seats(self, first: Iterable[Zone]) -> Iterator[Zone]:
        """Returns zones with waiting requests that may have seats: entitled zones, then ``first``, then the others."""
        if not self._engine.free_seats:
            return iter(self.seats.claimants)
        return chain(self.seats.claimants, (zone for zone in first if zone in self._admission), self._admission.first())

    def free_seats(self) -> int:
        """Returns the number of seats that are free, or will be made free for entitled zones before the step."""
        return max(self._engine.free_seats, len(self.seats.claimants))
